module github.com/lockquake/lockquake/examples/library-bugs/gozookeeper

go 1.21

require github.com/lockquake/lockquake/clients/go v0.0.0

require github.com/samuel/go-zookeeper v0.0.0-20161028232340-1d7be4effb13

replace github.com/lockquake/lockquake/clients/go => ../../../clients/go
