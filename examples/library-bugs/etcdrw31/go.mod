module github.com/lockquake/lockquake/examples/library-bugs/etcdrw31

go 1.21

require (
	github.com/coreos/etcd v3.1.0+incompatible
	github.com/golang/protobuf v1.3.2
	github.com/grpc-ecosystem/go-grpc-prometheus v1.2.0
	github.com/grpc-ecosystem/grpc-gateway v1.1.0
	github.com/lockquake/lockquake/clients/go v0.0.0
	github.com/prometheus/client_golang v0.9.2
	google.golang.org/grpc v1.3.0
)

require (
	github.com/beorn7/perks v0.0.0-20180321164747-3a771d992973 // indirect
	github.com/ghodss/yaml v1.0.0 // indirect
	github.com/matttproud/golang_protobuf_extensions v1.0.1 // indirect
	github.com/prometheus/client_model v0.0.0-20180712105110-5c3871d89910 // indirect
	github.com/prometheus/common v0.0.0-20181126121408-4724e9255275 // indirect
	github.com/prometheus/procfs v0.0.0-20181204211112-1dc9a6cbc91a // indirect
	golang.org/x/net v0.0.0-20210405180319-a5a99cb37ef4 // indirect
	golang.org/x/text v0.3.5 // indirect
	google.golang.org/genproto v0.0.0-20180817151627-c66870c02cf8 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
