//go:build !linux

package agent

func sharpen() {}
