package app

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/nats"
)

const natsUsage = "nats://HOST:PORT[,HOST:PORT...]/STREAM"

// natsBus carries batches over a stream of NATS.
func natsBus() backend.Bus {
	return backend.Bus{
		Scheme: "nats", Usage: natsUsage, Params: []string{"consumer", "credentials", "ca", "replicas"},
		Check: func(u backend.URL, c backend.BusConfig) error {
			_, err := natsConfig(u, c)
			return err
		},
		Open: openNATS,
		Examine: func(ctx context.Context, u backend.URL, r *backend.Report) {
			if cfg, err := natsConfig(u, backend.BusConfig{}); err == nil { // Check has refused others
				nats.Examine(ctx, cfg, r)
			}
		},
	}
}

func openNATS(ctx context.Context, u backend.URL, c backend.BusConfig) (b backend.OpenBus, err error) {
	cfg, err := natsConfig(u, c)
	if err != nil {
		return b, err
	}
	bus, err := nats.Open(ctx, cfg)
	if err != nil {
		return b, err
	}
	b = backend.OpenBus{Channel: bus, Topic: cfg.Stream}
	if c.Receive {
		b.Ready, b.GivenUp, b.GivenUpTopic = bus.Ready, bus.GivenUp(), cfg.Stream
	}
	return b, nil
}

// natsConfig reads a URL.
func natsConfig(u backend.URL, c backend.BusConfig) (cfg nats.Config, err error) {
	pieces, err := u.Path(2, 2, natsUsage)
	if err != nil {
		return cfg, err
	}
	hosts := u
	hosts.Rest = "//" + pieces[0]
	cfg = nats.Config{
		Stream: pieces[1], Consumer: u.Params.Get("consumer"), Credentials: u.Params.Get("credentials"), CA: u.Params.Get("ca"),
		Create: c.Create, MaxOutstanding: c.Messages, MaxBytes: c.Bytes, Logger: c.Logger,
	}
	if cfg.Servers, err = hosts.Hosts(checkServer); err != nil {
		return cfg, err
	}
	if cfg.Replicas, err = u.Count("replicas"); err != nil {
		return cfg, err
	}
	return cfg, cfg.Validate()
}

// checkServer also keeps secrets out of the command line.
func checkServer(server string) error {
	if strings.Contains(server, "@") {
		return fmt.Errorf("%q has a user; name a file with USER:PASSWORD in the parameter credentials", server[strings.LastIndex(server, "@")+1:])
	}
	host, port, err := net.SplitHostPort(server)
	if err != nil || slices.Contains([]string{host, port}, "") {
		return fmt.Errorf("%q is not HOST:PORT", server)
	}
	return nil
}
