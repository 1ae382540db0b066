package cli

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"quern/internal/assistant"
	"quern/internal/history"
	"quern/internal/openaiapi"
	"quern/internal/table"
	"quern/internal/web"
	"quern/sqlguard"
	"quern/toolloop"
)

type serveOptions struct {
	*askFlags
	listen     string
	token      string
	lanes      int
	maxWaiting int
	timeout    time.Duration
	grace      time.Duration
}

func serveCommand(env Env) *cli.Command {
	o := serveOptions{askFlags: newAskFlags()}
	flags := []cli.Flag{
		&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8080", Usage: "`ADDRESS` to listen on; other than loopback needs --token", Destination: &o.listen},
		&cli.StringFlag{Name: "token", Usage: "bearer token that every request must bring", EnvVars: []string{"QUERN_TOKEN"}, Destination: &o.token},
		&cli.IntFlag{Name: "parallel", Value: 4, Usage: "requests that run at once; further ones wait", Destination: &o.lanes},
		&cli.IntFlag{Name: "max-waiting", Value: 64, Usage: "requests that may wait; further ones are turned away", Destination: &o.maxWaiting},
		&cli.DurationFlag{Name: "request-timeout", Value: 10 * time.Minute, Usage: "how long one request may take, waiting included; 0 sets no limit", Destination: &o.timeout},
		&cli.DurationFlag{Name: "grace", Value: 10 * time.Second, Usage: "how long running requests may go on at shutdown", Destination: &o.grace},
	}
	for _, flag := range o.flags() {
		if db, ok := flag.(*cli.StringFlag); ok && db.Name == "db" {
			db.Usage = "SQLite `FILE` that the page at / answers questions about"
		}
		flags = append(flags, flag)
	}
	return &cli.Command{
		Name:  "serve",
		Usage: "an OpenAI-compatible API, and with --db a web page to ask the database",
		Description: `   quern serve --model model.gguf --db shop.sqlite
   curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \
     -d '{"messages": [{"role": "user", "content": "Hello"}]}'

Paths: / (page), /v1/chat/completions, /v1/completions, /v1/models, /healthz, /metrics. Pages of other sites cannot call
it (no CORS). A request that reaches --request-timeout ends with the error code "timeout", status 504; in a stream the
error is the last event. Ctrl-C lets running requests finish.`,
		Flags: flags,
		Action: func(c *cli.Context) error {
			if o.confirm {
				return usagef("--confirm needs a terminal; the page shows each query as it runs")
			}
			if o.timeout < 0 || o.grace < 0 {
				return usagef("--request-timeout and --grace must not be below 0")
			}
			return runServe(c.Context, env, o)
		},
	}
}

func runServe(ctx context.Context, env Env, o serveOptions) error {
	if !loopback(o.listen) && o.token == "" {
		return usagef("--listen %s can be reached from other machines: set --token (or QUERN_TOKEN), for instance %s", o.listen, rand.Text())
	}
	o.model.lanes = o.lanes
	model, page, closeAll, err := o.openServed(ctx, env)
	if err != nil {
		return err
	}
	defer closeAll()
	if model.Engine == nil {
		return usagef("serve runs the model itself; --backend names a server that already does")
	}
	api := openaiapi.New(openaiapi.Config{
		Engine: model.Engine, Template: model.Template, Name: model.Name, Parse: callParser(model),
		MaxWaiting: o.maxWaiting, Timeout: o.timeout, Log: slog.New(slog.NewTextHandler(env.Stderr, nil)),
	})
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listening on %s: %w; --listen takes another address", o.listen, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", api)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		api.WriteMetrics(w)
	})
	if page != nil {
		mux.Handle("/", page)
	}
	address := "http://" + listener.Addr().String()
	fmt.Fprintf(env.Stderr, "quern: %s at %s/v1", model.Name, address)
	if page != nil {
		fmt.Fprintf(env.Stderr, ", page at %s/%s", address, tokenFragment(o.token))
	}
	fmt.Fprintln(env.Stderr, "  (Ctrl-C stops)")
	return serve(ctx, listener, guarded(mux, o.token, loopback(o.listen)), o.grace)
}

func tokenFragment(token string) string {
	if token == "" {
		return ""
	}
	return "#token=" + token
}

// openServed opens the model, and the page where there is a database.
func (o serveOptions) openServed(ctx context.Context, env Env) (model *assistant.Model, page http.Handler, closeAll func(), err error) {
	if o.db == "" {
		if model, err = o.model.open(ctx, env); err != nil {
			return nil, nil, nil, err
		}
		return model, nil, func() { model.Close() }, nil
	}
	d, err := o.open(ctx, env)
	if err != nil {
		return nil, nil, nil, err
	}
	return d.model, web.Handler(pageSource{d, env, o.timeout}), d.Close, nil
}

// serve runs until ctx ends, then lets running requests finish within grace.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, grace time.Duration) error {
	requests, cancelRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRequests()
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		err := server.Shutdown(last)
		if errors.Is(err, context.DeadlineExceeded) {
			cancelRequests()
			err = server.Close()
		}
		stopped <- err
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-stopped
}

// loopback says whether an address can only be reached from this machine.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// guarded checks the token and, without one, that the request names this machine: a page elsewhere whose name was made
// to resolve to 127.0.0.1 (DNS rebinding) does not.
func guarded(next http.Handler, token string, local bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case token != "" && !publicPath(r) && !hasToken(r, token):
			w.Header().Set("WWW-Authenticate", "Bearer")
			deny(w, http.StatusUnauthorized, "a bearer token is needed")
		case token == "" && local && !loopback(withPort(r.Host)):
			deny(w, http.StatusForbidden, "this server answers to its own address only, not to "+r.Host)
		case r.Header.Get("Sec-Fetch-Site") == "cross-site":
			deny(w, http.StatusForbidden, "pages of other sites may not call this server")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// publicPath are the page's own files, which hold nothing of anyone's; its data does need the token.
func publicPath(r *http.Request) bool {
	switch r.URL.Path {
	case "/", "/app.js", "/app.css", "/healthz":
		return r.Method == http.MethodGet
	}
	return false
}

func hasToken(r *http.Request, token string) bool {
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(got), []byte(token)) == 1
}

func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "80")
}

func deny(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "type": "invalid_request_error", "param": nil, "code": nil}})
}

// callParser reads the calls of the model's own form out of a text.
func callParser(m *assistant.Model) func(string) []openaiapi.Call {
	return func(text string) []openaiapi.Call {
		_, calls := m.Profile.Parse(text, nil)
		var list []openaiapi.Call
		for _, c := range calls {
			arguments, err := json.Marshal(c.Arguments)
			if err != nil {
				continue
			}
			list = append(list, openaiapi.Call{Name: c.Name, Arguments: string(arguments)})
		}
		return list
	}
}

// pageSource is what the web page asks.
type pageSource struct {
	*desk
	env     Env
	timeout time.Duration // of a question; 0 sets none
}

func (p pageSource) About() web.About {
	return web.About{Database: filepath.Base(p.guard.Path()), Model: p.model.Name, Note: p.guard.Note()}
}

func (p pageSource) Ask(ctx context.Context, question, conversation string, step func(web.Step)) (web.Answer, error) {
	if p.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.timeout)
		defer cancel()
	}
	a, err := p.ask(ctx, p.env, question, conversation, false, func(e toolloop.Event) {
		switch e.Kind {
		case toolloop.EventText:
			step(web.Step{Kind: "text", Text: e.Text})
		case toolloop.EventCall:
			step(web.Step{Kind: "call", Text: callText(*e.Call)})
		case toolloop.EventObservation:
			step(web.Step{Kind: "observation", Text: e.Observation.Text})
		}
	})
	if err != nil {
		return web.Answer{}, err
	}
	return web.Answer{SQL: a.SQL, Result: a.Result, Notes: a.Notes, Failed: a.Failed(), Foot: effort(a.Transcript), Conversation: a.Conversation}, nil
}

func (p pageSource) Schema(ctx context.Context) (sqlguard.Schema, error) {
	return p.guard.Schema(ctx, sqlguard.SchemaOptions{RowCounts: 100_000})
}

func (p pageSource) Export(ctx context.Context, sql, format string, w io.Writer) error {
	result, err := p.query(ctx, sql)
	switch {
	case err != nil:
		return err
	case result.Failure != nil:
		return errors.New(result.Failure.String())
	}
	return table.Write(w, result, table.Options{Format: table.Format(format)})
}

func (p pageSource) History(ctx context.Context) ([]history.Question, error) {
	if p.history == nil {
		return nil, nil
	}
	return p.history.Questions(ctx, history.Filter{Database: p.guard.Path()})
}
