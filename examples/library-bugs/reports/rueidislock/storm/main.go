// Command storm shows that rueidislock of github.com/redis/rueidis v1.0.79 sends thousands of commands a second while
// one user holds the lock and another waits. All options except the validity are the defaults. Usage: go run ./storm
// HOST:PORT
package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func main() {
	to := rueidis.ClientOption{InitAddress: os.Args[1:], Password: os.Getenv("REDISCLI_AUTH")}
	look, err := rueidis.NewClient(to)
	check(err)
	locker := func() rueidislock.Locker {
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{ClientOption: to, KeyMajority: 1, KeyValidity: time.Second})
		check(err)
		return l
	}
	commands := func() int {
		info, err := look.Do(context.Background(), look.B().Info().Section("stats").Build()).ToString()
		check(err)
		n, err := strconv.Atoi(regexp.MustCompile(`total_commands_processed:(\d+)`).FindStringSubmatch(info)[1])
		check(err)
		return n
	}
	holder, waiter := locker(), locker()
	_, release, err := holder.WithContext(context.Background(), "lock")
	check(err)
	defer release()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	before := commands()
	_, _, err = waiter.WithContext(ctx, "lock")
	fmt.Printf("one waiter asked for 2 s (%v): %d commands a second at the server\n", err, (commands()-before)/2)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
