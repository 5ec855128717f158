module github.com/lockquake/lockquake/examples/library-bugs/pglock

go 1.21

require (
	cirello.io/pglock v1.14.0
	github.com/lib/pq v1.10.9
	github.com/lockquake/lockquake/clients/go v0.0.0
)

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
