package cluster

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// useOwnConnections has a provider of testcontainers talk to its engine by a connection of its own for each request. With
// connections that are kept, what testcontainers does at the end of each call, closing those that are idle, can hit one that
// another goroutine has just taken for its request: the start of a container then fails with "http: CloseIdleConnections called".
// Nor are there idle ones to be left behind.
func useOwnConnections(ctx context.Context, p *testcontainers.DockerProvider) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // with HTTP/2 a transport makes itself settings of TLS, and the client then takes every engine for one behind TLS
	options := []client.Opt{
		client.WithHTTPClient(&http.Client{
			Transport:     &http.Transport{DisableKeepAlives: true, Protocols: &protocols},
			CheckRedirect: client.CheckRedirect,
		}),
		client.FromEnv, // its certificates: those that testcontainers found went with the client before
	}
	if c := testcontainers.ReadConfig().Config; c.TLSVerify == 1 {
		options = append(options, client.WithTLSClientConfig(
			filepath.Join(c.CertPath, "ca.pem"), filepath.Join(c.CertPath, "cert.pem"), filepath.Join(c.CertPath, "key.pem")))
	}
	before := p.Client()
	options = append(options, client.WithHost(before.DaemonHost()))
	own, err := testcontainers.NewDockerClientWithOpts(ctx, options...)
	if err != nil {
		return err
	}
	p.SetClient(own)
	return before.Close()
}
