package stmtfault

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/mooring-rpc/mooring/internal/dbfault"
)

// fatal are the SQLSTATEs with which Postgres ends a connection.
var fatal = map[string]bool{"08": true, "25P03": true, "25P04": true, "28": true, "3D": true, "53300": true, "55000": true, "57": true}

// classExample is a SQLSTATE of each class that has a cause as a whole.
var classExample = map[string]string{"08": "08006", "28": "28000", "3D": "3D000", "40": "40001", "53": "53200", "57": "57P01", "58": "58030"}

func postgresFailures() []Failure {
	all := []Failure{{State: "0A000", Routine: "call_bool_check_hook"}, {State: "40P01"}, {State: "57P03", Fatal: true}}
	for _, state := range dbfault.States() {
		f := Failure{State: state, Fatal: fatal[state]}
		if len(state) == 2 {
			f.State = classExample[state]
		}
		all = append(all, f)
	}
	return all
}

// Proxy is on the way to one Postgres. Its methods are for any number of goroutines.
//
// What fails is failed by Postgres itself: in place of the statement it gets one that it cannot parse, and the proxy only
// gives the error another SQLSTATE on its way back. So all that follows is as it is in earnest: which of the statements that
// were sent together have run, what is skipped, and that the transaction is undone. To prepare a statement counts as one, as
// does to run it.
type Proxy struct {
	Statements
	url     string
	network string
	target  string
	done    sync.WaitGroup
	ln      net.Listener

	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]struct{}
	closed bool
	starts *Failure // of new connections
}

// Postgres gives a proxy to a database until the test ends. Statements that pass has been asked about and says yes to are not
// counted and do not fail; nil has none pass.
func Postgres(tb testing.TB, databaseURL string, pass func(sql string) bool) *Proxy {
	tb.Helper()
	cfg, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		tb.Fatal("stmtfault: the database's URL cannot be read")
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		tb.Fatal("stmtfault: the database's URL cannot be read")
	}
	p := &Proxy{Statements: Statements{Failures: postgresFailures(), passes: pass}, conns: make(map[net.Conn]struct{})}
	p.network, p.target = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	if p.ln, err = new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0"); err != nil {
		tb.Fatal(err)
	}
	query := u.Query()
	query.Del("host")
	query.Del("port")
	query.Set("sslmode", "disable")
	u.Host, u.RawQuery = p.ln.Addr().String(), query.Encode()
	p.url = u.String()
	p.done.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// URL is the database's, by way of the proxy.
func (p *Proxy) URL() string { return p.url }

// Refuse has new connections be answered a failure; nil lets them in again.
func (p *Proxy) Refuse(f *Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starts = f
}

func (p *Proxy) close() {
	_ = p.ln.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.done.Wait()
}

// keep has a connection be closed with the proxy, and says whether that has been.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // it was gone before it was taken
		}
		p.done.Go(func() { p.serve(c) })
	}
}

// serve is one connection's life.
func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	if !p.keep(client) {
		return
	}
	in := bufio.NewReader(client)
	first, err := startup(in, client)
	if err != nil {
		return
	}
	p.mu.Lock()
	refused := p.starts
	p.mu.Unlock()
	if refused != nil {
		_, _ = client.Write(encode(refused.response("the connection is refused", true)))
		return
	}
	server, err := net.Dial(p.network, p.target)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.keep(server) {
		return
	}
	if _, err := server.Write(first); err != nil {
		return
	}
	l := &link{proxy: p, client: client, server: server, prepared: make(map[string]string), portals: make(map[string]string)}
	back := make(chan struct{})
	go func() {
		defer close(back)
		l.toClient()
		_ = client.(*net.TCPConn).CloseWrite() // else a reset could overtake what was written last
	}()
	l.toServer(in)
	_ = server.Close()
	<-back
}

// sslRequest and gssRequest ask for what the proxy does not have.
const (
	sslRequest = 80877103
	gssRequest = 80877104
)

// startup reads the message that a connection begins with.
func startup(in *bufio.Reader, client net.Conn) ([]byte, error) {
	for {
		head, err := in.Peek(8)
		if err != nil {
			return nil, err
		}
		message := make([]byte, max(8, min(binary.BigEndian.Uint32(head), 1<<16)))
		if _, err := io.ReadFull(in, message); err != nil {
			return nil, err
		}
		if code := binary.BigEndian.Uint32(head[4:]); code != sslRequest && code != gssRequest {
			return message, nil
		}
		if _, err := client.Write([]byte("N")); err != nil {
			return nil, err
		}
	}
}

// link is a connection to the proxy, and the one to Postgres that belongs to it.
type link struct {
	proxy             *Proxy
	client, server    net.Conn
	prepared, portals map[string]string // SQL, by name

	mu    sync.Mutex // guards what follows
	fails []Failure  // what Postgres's errors become that repeat broken and a number
}

// broken, with a number, is what Postgres cannot parse.
var broken = regexp.MustCompile(`stmtfault_broken_([0-9]+)`)

// toServer hands on what the client sends, but for what is to fail.
func (l *link) toServer(in *bufio.Reader) {
	out := bufio.NewWriter(l.server)
	skip := false // up to the next Sync, as Postgres does after an error
	for {
		kind, message, err := read(in)
		if err != nil {
			return
		}
		if kind == 'S' || kind == 'Q' {
			skip = false
		}
		if sql, is := l.statement(kind, message[5:]); is && !skip {
			if f, fails := l.proxy.now(sql); fails {
				word := l.add(f)
				if message = encode(&pgproto3.Query{String: word}); kind != 'Q' {
					message, skip = encode(&pgproto3.Parse{Name: word, Query: word}), true
				}
			}
		}
		if _, err := out.Write(message); err != nil {
			return
		}
		if in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return
			}
		}
	}
}

// add gives the word that stands for a failure.
func (l *link) add(f Failure) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails = append(l.fails, f)
	return fmt.Sprintf("stmtfault_broken_%d", len(l.fails)-1)
}

func (l *link) failure(number string) Failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, _ := strconv.Atoi(number)
	return l.fails[n]
}

// statement is the SQL of a message that prepares a statement, or runs one.
func (l *link) statement(kind byte, body []byte) (sql string, is bool) {
	switch kind {
	case 'Q':
		return text(body), true
	case 'P':
		name := text(body)
		sql = text(body[len(name)+1:])
		l.prepared[name] = sql
		return "prepare: " + sql, true
	case 'B':
		portal := text(body)
		l.portals[portal] = l.prepared[text(body[len(portal)+1:])]
	case 'E':
		return l.portals[text(body)], true
	}
	return "", false
}

// toClient hands on what Postgres answers.
func (l *link) toClient() {
	in, out := bufio.NewReader(l.server), bufio.NewWriter(l.client)
	for {
		kind, message, err := read(in)
		if err != nil {
			return
		}
		fatal := false
		if kind == 'E' {
			if word := broken.FindSubmatch(message); word != nil {
				f := l.failure(string(word[1]))
				message, fatal = encode(f.response("made up by a test", f.Fatal)), f.Fatal
			}
		}
		if _, err := out.Write(message); err != nil {
			return
		}
		if in.Buffered() == 0 || fatal {
			if err := out.Flush(); err != nil {
				return
			}
		}
		if fatal {
			return
		}
	}
}

// response is a failure as Postgres words it.
func (f *Failure) response(words string, fatal bool) *pgproto3.ErrorResponse {
	severity := "ERROR"
	if fatal {
		severity = "FATAL"
	}
	return &pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: f.State, Message: words, Routine: f.Routine}
}

// read reads a message with its head, a letter and the length of the rest.
func read(in *bufio.Reader) (kind byte, message []byte, err error) {
	head, err := in.Peek(5)
	if err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > 1<<30 {
		return 0, nil, errors.New("stmtfault: a message of " + strconv.FormatUint(uint64(n), 10) + " bytes")
	}
	message = make([]byte, 1+n)
	_, err = io.ReadFull(in, message)
	return message[0], message, err
}

// text is the one at the beginning of what has been read.
func text(body []byte) string {
	before, _, _ := bytes.Cut(body, []byte{0})
	return string(before)
}

func encode(m pgproto3.Message) []byte {
	b, err := m.Encode(nil)
	if err != nil {
		panic(err) // a few fixed words are never too long
	}
	return b
}
