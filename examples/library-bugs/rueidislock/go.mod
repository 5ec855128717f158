module github.com/lockquake/lockquake/examples/library-bugs/rueidislock

go 1.21

require (
	github.com/lockquake/lockquake/clients/go v0.0.0
	github.com/redis/rueidis v1.0.44
)

require golang.org/x/sys v0.19.0 // indirect

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
