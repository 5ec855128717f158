module github.com/lockquake/lockquake/clients/go/redsync

go 1.18

require (
	github.com/go-redsync/redsync/v4 v4.0.4
	github.com/gomodule/redigo v1.8.2
	github.com/lockquake/lockquake/clients/go v0.0.0
)

require (
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/hashicorp/go-multierror v1.1.0 // indirect
)

replace github.com/lockquake/lockquake/clients/go => ../
