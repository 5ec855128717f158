module github.com/lockquake/lockquake/examples/library-bugs/etcdrw30

go 1.21

require (
	github.com/coreos/etcd v3.0.17+incompatible
	github.com/golang/protobuf v1.0.0
	github.com/grpc-ecosystem/grpc-gateway v1.1.0
	github.com/lockquake/lockquake/clients/go v0.0.0
	google.golang.org/grpc v1.0.0
)

require (
	github.com/ghodss/yaml v1.0.0 // indirect
	golang.org/x/net v0.0.0-20210405180319-a5a99cb37ef4 // indirect
	golang.org/x/text v0.3.5 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
