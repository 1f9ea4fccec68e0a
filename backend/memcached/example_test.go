package memcached_test

import (
	"fmt"

	"github.com/countmill/countmill/backend/memcached"
)

func ExampleCheckServer() {
	fmt.Println(memcached.CheckServer("10.0.0.7:11211"))
	fmt.Println(memcached.CheckServer("10.0.0.7"))
	// Output:
	// <nil>
	// a server is HOST:PORT, got "10.0.0.7"
}
