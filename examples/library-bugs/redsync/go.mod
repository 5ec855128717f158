module github.com/lockquake/lockquake/examples/library-bugs/redsync

go 1.21

require (
	github.com/go-redis/redis/v8 v8.11.5
	github.com/go-redsync/redsync/v4 v4.7.1
	github.com/lockquake/lockquake/clients/go v0.0.0
)

require (
	github.com/cespare/xxhash/v2 v2.1.2 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/hashicorp/go-multierror v1.1.0 // indirect
)

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
