module github.com/lockquake/lockquake/examples/library-bugs/redislock

go 1.21

require (
	github.com/bsm/redislock v0.9.1
	github.com/lockquake/lockquake/clients/go v0.0.0
	github.com/redis/go-redis/v9 v9.0.2
)

require (
	github.com/cespare/xxhash/v2 v2.2.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
)

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
