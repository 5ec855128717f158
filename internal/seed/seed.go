// Package seed splits the one seed of a run by the names of its components. So each component has its own stream of
// random numbers, whatever the others draw.
package seed

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
)

// Split returns the seed of the named component.
func Split(seed uint64, name string) uint64 {
	h := fnv.New64a()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	_, _ = h.Write(b[:]) // a hash never fails
	_, _ = h.Write([]byte(name))
	return mix(h.Sum64())
}

// Rand returns the named component's own source of random numbers. It is not safe for concurrent use.
func Rand(seed uint64, name string) *rand.Rand {
	s := Split(seed, name)
	return rand.New(rand.NewPCG(s, mix(s+1)))
}

// mix is the finalizer of splitmix64: names that differ in one letter give seeds that differ in half of their bits.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
