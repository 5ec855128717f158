package redis

import "github.com/lockquake/lockquake/internal/cluster"

// Store describes a Redis server that is not a lock service but what a lock protects, with this package's image and
// settings. It keeps everything in memory.
func Store(name string) cluster.Spec {
	return cluster.Spec{
		Name: name, Role: cluster.Resource, Image: "redis",
		Ports:   []cluster.Port{{Name: Port, Number: 6379}},
		Command: func(p cluster.Place) []string { return command(p.Address(name, Port), p.Dir, "none") },
	}
}
