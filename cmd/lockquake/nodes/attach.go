package nodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/scenarios"
)

// attachFlags are the flags of a verb whose runs may use an external service.
type attachFlags struct {
	File    string
	yes     bool
	secrets []string // further files and variables whose passwords may be sent
	sent    []string // the files and variables that the passwords come from
	strange []string // those of them that neither belong to the attach file nor were named by --secret
}

func (a *attachFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&a.File, "attach", "", "use the running service that this file describes, instead of starting servers (docs/attach.md)")
	fl.BoolVar(&a.yes, "yes", false, "with --attach: write there without asking")
	fl.StringArrayVar(&a.secrets, "secret", nil,
		"with --attach: a file or environment variable whose password may be sent there; needed if it is neither next to the file nor named LOCKQUAKE_...; may be repeated")
}

// attachFile describes an external service.
type attachFile struct {
	Backend   string           `yaml:"backend"`
	Prefix    string           `yaml:"prefix"`
	Endpoints []string         `yaml:"endpoints"`
	Database  string           `yaml:"database"`
	User      string           `yaml:"user"`
	Password  secret           `yaml:"password"`
	TLS       *attachTLS       `yaml:"tls"`
	Sentinels *attachSentinels `yaml:"sentinels"`
}

// attachTLS names the TLS files.
type attachTLS struct {
	CA         string `yaml:"ca"`
	Cert       string `yaml:"cert"`
	Key        string `yaml:"key"`
	ServerName string `yaml:"server_name"`
}

// attachSentinels describes the Sentinels, which have a login of their own.
type attachSentinels struct {
	Master    string   `yaml:"master"`
	Endpoints []string `yaml:"endpoints"`
	User      string   `yaml:"user"`
	Password  secret   `yaml:"password"`
}

// secret says where a password is stored. The attach file itself never has one.
type secret struct {
	Env  string `yaml:"env"`
	File string `yaml:"file"`
}

// read returns the service, or nil without --attach.
func (a *attachFlags) read() (*engine.Attached, error) {
	if a.File == "" {
		switch {
		case a.yes:
			return nil, cli.Usagef("--yes: only with --attach")
		case len(a.secrets) > 0:
			return nil, cli.Usagef("--secret: only with --attach")
		}
		return nil, nil
	}
	data, err := history.ReadFile(a.File, history.MostText)
	if err != nil {
		return nil, cli.Usagef("--attach: %v", err)
	}
	var f attachFile
	p, err := scenarios.ReadParams(data, a.File)
	if err == nil {
		err = p.Decode(&f)
	}
	if err != nil {
		return nil, withoutPasswordLine(err)
	}
	r := &attachReader{dir: filepath.Dir(a.File), params: p}
	out, err := r.service(f)
	a.sent, a.strange = r.secrets, slices.DeleteFunc(slices.Clone(r.secrets),
		func(s string) bool { return r.own(s) || slices.Contains(a.secrets, s) })
	return out, err
}

// withoutPasswordLine returns the error without the line of the file if that line may contain a password.
func withoutPasswordLine(err error) error {
	var wrong *scenarios.Error
	text, line, _ := strings.Cut(err.Error(), "\n")
	switch {
	case errors.As(err, &wrong) && strings.Contains(wrong.Path, "password"):
		return cli.Usagef("%s:%d:%d: %s: the file must not contain a password; name its place: {env: NAME} or {file: PATH}",
			wrong.File, wrong.Line, wrong.Column, wrong.Path)
	case strings.Contains(line, "password"):
		return cli.Usagef("%s", text)
	}
	return err
}

// attachReader converts an attach file to a service.
type attachReader struct {
	dir     string // directory of the attach file, to which its file names are relative
	params  scenarios.Params
	secrets []string // where passwords were read from: paths, and variables as $NAME
}

// ownVariable is the prefix of the variables that an attach file may read without consent.
const ownVariable = "$LOCKQUAKE_"

// own reports whether a secret belongs to the attach file: a file in its directory (links resolved), or a LOCKQUAKE_
// variable. Any other secret needs consent: it may be unrelated to the service, and the author of the attach file
// would receive it.
func (r *attachReader) own(secret string) bool {
	if strings.HasPrefix(secret, "$") {
		return strings.HasPrefix(secret, ownVariable)
	}
	dir, err := filepath.EvalSymlinks(r.dir)
	file, unread := filepath.EvalSymlinks(secret)
	return err == nil && unread == nil && filepath.Dir(file) == dir
}

func (r *attachReader) service(f attachFile) (*engine.Attached, error) {
	ports, err := r.ports(f.Backend)
	if err != nil {
		return nil, err
	}
	if len(f.Prefix) < 2 || len(f.Prefix) > 100 || strings.ContainsFunc(f.Prefix,
		func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil, r.params.Errorf("prefix",
			"it is %q; all keys of the runs begin with it, and it must be 2 to 100 letters, digits and signs, such as bench:", f.Prefix)
	}
	login := node.Login{User: f.User}
	if login.Password, err = r.secret("password", f.Password); err != nil {
		return nil, err
	}
	if login.TLS, err = r.tls(f.TLS); err != nil {
		return nil, err
	}
	out := &engine.Attached{Backend: f.Backend, Prefix: f.Prefix, Database: f.Database}
	if out.Endpoints, err = r.endpoints("endpoints", f.Endpoints, ports[0], login); err != nil {
		return nil, err
	}
	switch s := f.Sentinels; {
	case len(ports) == 1 && s != nil:
		return nil, r.params.Errorf("sentinels", "backend %s has none", f.Backend)
	case len(ports) == 1:
		return out, nil
	case s == nil:
		return nil, r.params.Errorf("sentinels", "backend %s needs their endpoints and the name of their master",
			f.Backend)
	}
	login.User, out.Master = f.Sentinels.User, f.Sentinels.Master
	if login.Password, err = r.secret("sentinels", f.Sentinels.Password); err != nil {
		return nil, err
	}
	watches, err := r.endpoints("sentinels", f.Sentinels.Endpoints, ports[1], login)
	out.Endpoints = append(out.Endpoints, watches...)
	return out, err
}

// ports returns the kinds of endpoints that a backend has.
func (r *attachReader) ports(backend string) ([]string, error) {
	var known []string
	for _, b := range all.All() {
		if b.Name == backend && len(b.Attachable) > 0 {
			return b.Attachable, nil
		}
		if len(b.Attachable) > 0 {
			known = append(known, b.Name)
		}
	}
	return nil, r.params.Errorf("backend", "it is %q; it must be one of %s", backend,
		strings.Join(known, ", "))
}

func (r *attachReader) endpoints(key string, list []string, port string, login node.Login) ([]cluster.Endpoint, error) {
	if len(list) == 0 {
		return nil, r.params.Errorf(key, "no endpoints; write a list of host:port")
	}
	var out []cluster.Endpoint
	for i, address := range list {
		host, number, err := net.SplitHostPort(address)
		if err != nil || host == "" || number == "" || strings.Trim(number, "0123456789") != "" {
			return nil, r.params.Errorf(key, "%q is no address; write host:port", address)
		}
		if slices.Contains(list[:i], address) {
			return nil, r.params.Errorf(key, "%s is listed twice", address)
		}
		out = append(out, cluster.Endpoint{Port: port, Address: address, Login: login})
	}
	return out, nil
}

func (r *attachReader) secret(key string, s secret) (string, error) {
	switch {
	case s.Env != "" && s.File != "":
		return "", r.params.Errorf(key, "give env or file, not both")
	case s.Env != "":
		value, ok := os.LookupEnv(s.Env)
		if !ok || value == "" {
			return "", r.params.Errorf(key, "environment variable %s is not set", s.Env)
		}
		r.secrets = append(r.secrets, "$"+s.Env)
		return value, nil
	case s.File != "":
		r.secrets = append(r.secrets, r.path(s.File))
		text, err := r.text(key, s.File)
		return strings.TrimRight(text, "\r\n"), err
	}
	return "", nil
}

// path resolves a file name of the attach file.
func (r *attachReader) path(file string) string {
	if filepath.IsAbs(file) {
		return filepath.Clean(file)
	}
	return filepath.Join(r.dir, file)
}

func (r *attachReader) text(key, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := history.ReadFile(r.path(file), history.MostText)
	if err != nil {
		return "", r.params.Errorf(key, "%v", err)
	}
	return string(data), nil
}

func (r *attachReader) tls(t *attachTLS) (*node.TLS, error) {
	if t == nil {
		return nil, nil
	}
	out := &node.TLS{Name: t.ServerName}
	for _, part := range []struct {
		file string
		into *string
	}{{t.CA, &out.CA}, {t.Cert, &out.Cert}, {t.Key, &out.Key}} {
		var err error
		if *part.into, err = r.text("tls", part.file); err != nil {
			return nil, err
		}
	}
	if _, err := out.Config(""); err != nil {
		return nil, r.params.Errorf("tls", "%v", err)
	}
	return out, nil
}

// Agree inspects the attached service, and asks for consent before anything is written to it. Before that it asks for
// consent to send a password that does not belong to the attach file.
func (a *attachFlags) Agree(ctx context.Context, std cli.Streams, o engine.Options) error {
	if o.Attached == nil {
		return nil
	}
	if len(a.strange) > 0 {
		what := fmt.Sprintf("the password in %s to %s", strings.Join(a.strange, " and "), o.Attached.Addresses())
		if !cli.CanAsk(std) || a.yes {
			return cli.Usagef("--attach: %s would send %s: allow it with --secret %s", a.File, what,
				cli.Quoted(a.strange[0]))
		}
		if !cli.AskYes(ctx, std, a.File+" sends "+what+". Go on?") {
			return cli.Usagef("--attach: nothing was sent")
		}
	}
	where, partly, err := engine.Visit(ctx, o)
	if err != nil {
		return err
	}
	if partly != "" {
		fmt.Fprintf(std.Err, "lockquake: --attach: not all keys were searched for those below %q: %s\n",
			o.Attached.Prefix, partly)
	}
	if a.yes {
		return nil
	}
	if !cli.CanAsk(std) {
		return cli.Usagef("--attach: the runs would write %s; confirm with --yes, as there is no terminal", where)
	}
	from := ""
	if len(a.sent) > 0 {
		from = ", with the password in " + strings.Join(a.sent, " and ")
	}
	if !cli.AskYes(ctx, std, "The runs write "+where+from+", nowhere else, and remove it in the end. Continue?") {
		return cli.Usagef("--attach: nothing was written")
	}
	return nil
}
