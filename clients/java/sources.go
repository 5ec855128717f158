// Package java embeds the sources of the Java clients, for the image in which they are compiled.
package java

import "embed"

// Sources are the protocol and the clients that ship.
//
//go:embed *.java
var Sources embed.FS
