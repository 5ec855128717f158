package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// Login has the credentials that a server requires of its clients. The zero value means that it requires none.
type Login struct {
	User     string `json:"user,omitempty"` // "": the service's own default
	Password string `json:"password,omitempty"`
	TLS      *TLS   `json:"tls,omitempty"` // nil: no TLS
}

// TLS is the TLS configuration of connections to a server. Certificates and keys are in PEM, because a client process
// has none of our files.
type TLS struct {
	CA   string `json:"ca,omitempty"`          // trusted CAs; "": the machine's own list
	Cert string `json:"cert,omitempty"`        // of the client; "": none
	Key  string `json:"key,omitempty"`         // of that certificate
	Name string `json:"server_name,omitempty"` // in the server's certificate; "": the host that was dialled
}

// Config returns the configuration of a client that connects to a host; nil without TLS.
func (t *TLS) Config(host string) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.Name}
	if c.ServerName == "" {
		c.ServerName = host
	}
	if t.CA != "" {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM([]byte(t.CA)) {
			return nil, errors.New("tls.ca holds no certificate in PEM")
		}
	}
	if t.Cert != "" {
		pair, err := tls.X509KeyPair([]byte(t.Cert), []byte(t.Key))
		if err != nil {
			return nil, fmt.Errorf("tls.cert and tls.key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Over makes the TLS handshake over a connection to an address; without TLS it returns the connection unchanged. It
// closes the connection on an error.
func (t *TLS) Over(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	if t == nil {
		return conn, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	config, err := t.Config(host)
	if err == nil {
		inner := tls.Client(conn, config)
		if err = inner.HandshakeContext(ctx); err == nil {
			return inner, nil
		}
	}
	_ = conn.Close() // unusable after a failed handshake
	return nil, fmt.Errorf("TLS with %s: %w", address, err)
}
