package inproc_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/backend/inproc"
)

// With WaitForAck, Publish returns when a subscriber has acknowledged the message.
func Example() {
	bus, err := inproc.New(inproc.Config{WaitForAck: true})
	if err != nil {
		log.Fatal(err)
	}
	defer bus.Close()
	messages, err := bus.Subscribe(context.Background(), "countmill")
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for m := range messages {
			fmt.Println("got", string(m.Payload))
			m.Ack()
		}
	}()
	err = bus.Publish("countmill", message.NewMessage("1", []byte("hello")))
	fmt.Println("acknowledged", err)
	// Output:
	// got hello
	// acknowledged <nil>
}
