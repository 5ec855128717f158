//go:build !linux

package cluster

import "errors"

var errLinux = errors.New("it needs Linux")

func probeNamespaces() error { return errLinux }

func probeNetem() error { return errLinux }

func probePtrace() (string, error) { return "", errLinux }
