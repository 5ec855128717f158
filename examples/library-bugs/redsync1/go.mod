module github.com/lockquake/lockquake/examples/library-bugs/redsync1

go 1.21

require (
	github.com/go-redsync/redsync v1.3.0
	github.com/gomodule/redigo v2.0.0+incompatible
	github.com/lockquake/lockquake/clients/go v0.0.0
)

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
