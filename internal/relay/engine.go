package relay

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"

	"github.com/lockquake/lockquake/internal/clock"
)

// Port is the port on which a relay listens.
const Port = "7475"

// KeyVariable is the environment variable with a relay's key.
const KeyVariable = "LOCKQUAKE_RELAY_KEY"

// name is the host name in the certificate of a run.
const name = "lockquake-relay"

// Key is the secret of one run: a certificate that both ends present to each other, and its private key.
type Key struct {
	pair   tls.Certificate
	config *tls.Config // both ends present the one certificate, and accept no other
}

func newKey(cert []byte, private *ecdsa.PrivateKey) (Key, error) {
	parsed, err := x509.ParseCertificate(cert)
	if err != nil {
		return Key{}, fmt.Errorf("the certificate of a relay: %w", err)
	}
	only := x509.NewCertPool()
	only.AddCert(parsed)
	pair := tls.Certificate{Certificate: [][]byte{cert}, PrivateKey: private}
	return Key{pair, &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: only, ServerName: name,
		ClientCAs: only, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}}, nil
}

// NewKey returns a new key that is valid for ten days.
func NewKey() (Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Key{}, err
	}
	now := clock.Wall()
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.AddDate(0, 0, -1), NotAfter: now.AddDate(0, 0, 10), // the clocks of hosts may differ
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, of, of, private.Public(), private)
	if err != nil {
		return Key{}, err
	}
	return newKey(cert, private)
}

// Text returns the key as one line, for an environment variable.
func (k Key) Text() (string, error) {
	private, err := x509.MarshalECPrivateKey(k.pair.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		return "", err
	}
	e := base64.StdEncoding
	return e.EncodeToString(k.pair.Certificate[0]) + "." + e.EncodeToString(private), nil
}

// ParseKey parses the text of a key.
func ParseKey(text string) (Key, error) {
	public, secret, _ := strings.Cut(text, ".")
	cert, err := base64.StdEncoding.DecodeString(public)
	if err != nil {
		return Key{}, fmt.Errorf("the key of a relay: %w", err)
	}
	der, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		return Key{}, fmt.Errorf("the key of a relay: %w", err)
	}
	private, err := x509.ParseECPrivateKey(der)
	if err != nil {
		return Key{}, fmt.Errorf("the key of a relay: %w", err)
	}
	return newKey(cert, private)
}

// Serve forwards every connection that presents the key to a socket of this machine, until the context ends.
func Serve(ctx context.Context, key Key, listen, socket string) error {
	listening := net.ListenConfig{KeepAliveConfig: dialer.KeepAliveConfig, Control: dialer.Control}
	l, err := listening.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("relay: %w", err)
		}
		go serve(ctx, tls.Server(conn, key.config), socket)
	}
}

// serve forwards one connection.
func serve(ctx context.Context, conn *tls.Conn, socket string) {
	defer func() { _ = conn.Close() }()
	hands, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if conn.HandshakeContext(hands) != nil {
		return
	}
	var to net.Dialer
	engine, err := to.DialContext(hands, "unix", socket)
	if err != nil {
		return
	}
	pass(engine, conn)
}

// DialEngine connects to the engine behind the relay at that address.
func (c *Client) DialEngine(ctx context.Context, key Key, address string) (net.Conn, error) {
	raw, err := c.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, key.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("the relay at %s: %w", address, err), raw.Close())
	}
	return conn, nil
}
