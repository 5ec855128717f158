module github.com/lockquake/lockquake/examples/library-bugs/reports/zk

go 1.21

require github.com/go-zookeeper/zk v1.0.4
