// HTTP batches, one message a line: the server's side, which lives as long as a request, and the client's.

package transport

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/mooring-rpc/mooring/internal/peerconn"
)

// Batch is the server's side: it reads from one body and writes into another.
type Batch struct {
	OnInputDone func() // called when the whole body has been handled

	body          lineReader
	maxOut        int
	remote        string
	inputDoneSent bool

	mu         sync.Mutex
	out        []byte
	wrote      bool
	overflowed bool
	closed     chan struct{}
	once       sync.Once
}

// NewBatch returns the transport of a request's body, whose answers may take most bytes.
func NewBatch(body io.Reader, most int, remote string) *Batch {
	return &Batch{body: lineReader{from: body}, maxOut: most, remote: remote, closed: make(chan struct{})}
}

func (t *Batch) SetAdmitRead(reading func(int, []byte) error) { t.body.admitRead = reading }

// Read returns the next line. After the last one it blocks: the client waits.
func (t *Batch) Read(context.Context) ([]byte, error) {
	if m, ok := t.body.next(); ok {
		return m, nil
	}
	if t.body.err != nil && t.body.err != io.EOF {
		return nil, t.body.err
	}
	if !t.inputDoneSent {
		t.inputDoneSent = true
		t.OnInputDone()
	}
	<-t.closed
	return nil, io.EOF
}

func (t *Batch) Write(_ context.Context, messages [][]byte) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range messages {
		if t.overflowed = t.overflowed || len(t.out)+len(m) >= t.maxOut; t.overflowed {
			t.out = nil
			return ErrAnswersTooLarge
		}
		if t.wrote {
			t.out = append(t.out, '\n')
		}
		t.wrote = true
		t.out = append(t.out, m...)
	}
	return nil
}

// Finish returns the bytes written, once Run has returned. The transport does not keep them any longer, nor the body.
func (t *Batch) Finish() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := t.out
	t.out, t.body = nil, lineReader{err: t.body.err}
	if t.overflowed {
		return nil, ErrAnswersTooLarge
	}
	return out, nil
}

func (t *Batch) Ping(context.Context) error { return nil }

func (t *Batch) Close(int, string) error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

func (t *Batch) RemoteAddr() string { return t.remote }

// Fill reads until n bytes of the body are there, or it ends.
func (t *Batch) Fill(n int) error { return t.body.fill(n) }

// ReadErr returns why the body could not be read; nil for a refusal to read on, which is reported among the answers.
func (t *Batch) ReadErr() error {
	if _, refused := peerconn.AsRefusal(t.body.err); refused || t.body.err == io.EOF {
		return nil
	}
	return t.body.err
}

// Answer is the client's side, once the batch was sent: it reads the answers. Messages written afterwards are dropped.
type Answer struct {
	URL         string
	OnInputDone func() // called when the whole answer has been handled

	body   lineReader
	err    error // instead of an answer
	closed chan struct{}
	once   sync.Once
}

// NewAnswer returns the transport of a batch that is still to be sent to url.
func NewAnswer(url string) *Answer { return &Answer{URL: url, closed: make(chan struct{})} }

// Set sets the answers, or the error that there is instead.
func (t *Answer) Set(body []byte, err error) {
	t.body, t.err = lineReader{unread: body, err: io.EOF}, err
}

func (t *Answer) Read(context.Context) ([]byte, error) {
	if t.err != nil {
		return nil, t.err
	}
	if m, ok := t.body.next(); ok {
		return m, nil
	}
	t.OnInputDone()
	<-t.closed
	return nil, io.EOF
}

func (t *Answer) Write(context.Context, [][]byte) error { return nil }
func (t *Answer) Ping(context.Context) error            { return nil }
func (t *Answer) RemoteAddr() string                    { return t.URL }

func (t *Answer) Close(int, string) error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

// Post sends a batch and reads the answer, of at most so many bytes.
func Post(ctx context.Context, url string, via *http.Client, header http.Header, body []byte, most int) ([]byte, error) {
	if strings.HasPrefix(url, "ws:") || strings.HasPrefix(url, "wss:") {
		url = "http" + url[len("ws"):]
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	client := *via
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if moved := redirectError(resp); moved != nil {
		return nil, moved
	}
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return nil, fmt.Errorf("the server answered %s: %s", resp.Status, bytes.TrimSpace(said))
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(answer) > most {
		return nil, ErrAnswersTooLarge
	}
	return answer, nil
}
