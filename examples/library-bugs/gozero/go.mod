module github.com/lockquake/lockquake/examples/library-bugs/gozero

go 1.21

require github.com/lockquake/lockquake/clients/go v0.0.0

require (
	github.com/cespare/xxhash/v2 v2.1.2 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	github.com/go-redis/redis/v8 v8.11.4 // indirect
	github.com/spaolacci/murmur3 v1.1.0 // indirect
	github.com/zeromicro/go-zero v1.3.2
	go.opentelemetry.io/otel v1.3.0 // indirect
	go.opentelemetry.io/otel/trace v1.3.0 // indirect
	go.uber.org/automaxprocs v1.4.0 // indirect
	golang.org/x/sys v0.0.0-20220227234510-4e6760a101f9 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
