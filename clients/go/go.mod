module github.com/lockquake/lockquake/clients/go

go 1.18
