// Package java has the clients in Java as sources, for the image that has them compiled.
package java

import "embed"

// Sources are the protocol and the clients that ship.
//
//go:embed *.java
var Sources embed.FS
