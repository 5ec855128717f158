//go:build bench || soak || integration

package main

import "os"

// setting returns a variable of the environment, or a default.
func setting(name, otherwise string) string {
	if s := os.Getenv(name); s != "" {
		return s
	}
	return otherwise
}
