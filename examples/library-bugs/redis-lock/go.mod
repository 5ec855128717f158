module github.com/lockquake/lockquake/examples/library-bugs/redis-lock

go 1.21

require (
	github.com/bsm/redis-lock v7.0.0+incompatible
	github.com/go-redis/redis v6.7.4+incompatible
	github.com/lockquake/lockquake/clients/go v0.0.0
)

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
