//go:build bench || soak || integration

package main

import "os"

// setting is what the environment says, or what holds otherwise.
func setting(name, otherwise string) string {
	if s := os.Getenv(name); s != "" {
		return s
	}
	return otherwise
}
