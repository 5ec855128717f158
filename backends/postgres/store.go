package postgres

import "github.com/lockquake/lockquake/internal/cluster"

// Store describes a PostgreSQL server that is not a lock service but what a lock protects, with this package's image and
// settings: what it has answered is on disk.
func Store(name string) cluster.Spec {
	return cluster.Spec{
		Name: name, Role: cluster.Resource, Image: "postgres",
		Ports:   []cluster.Port{{Name: Port, Number: 5432}},
		Command: func(p cluster.Place) []string { return defaults().command(p.Address(name, Port), p.Dir) },
	}
}
