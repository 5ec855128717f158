package postgres

import "github.com/lockquake/lockquake/internal/node"

// Store returns a PostgreSQL server that is not a lock service but the resource that a lock protects, with this
// package's image and settings: everything that it has acknowledged is on disk.
func Store(name string) node.Spec {
	return node.Spec{
		Name: name, Role: node.Resource, Image: "postgres",
		Ports:   []node.Port{{Name: Port, Number: 5432}},
		Secret:  secret,
		Command: func(p node.Place) []string { return defaults().command(p, p.Address(name, Port)) },
	}
}
