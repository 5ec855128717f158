module github.com/lockquake/lockquake/examples/library-bugs/zk

go 1.21

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/lockquake/lockquake/clients/go v0.0.0
)

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
