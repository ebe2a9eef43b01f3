package main

// What agents that mooring run runs cost: the time from a prompt's POST until the agent has it, beside an append, and the memory of the server
// that a runner with nothing to do takes.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/measure"
	"github.com/mooring-rpc/mooring/internal/server/operator"
)

// agentsRow is what agents cost on one database.
type agentsRow struct {
	db              string
	append, prompt  quantiles
	runners, rested int // runners at rest, and bytes of the server's memory for each
}

// The aims: appends that a prompt may take, p50, and the memory of a runner at rest.
const (
	promptAim = 10
	runnerAim = 64 << 10
)

// restSpan is how long the server rests before its memory is read: longer than package gctune needs to see it.
const restSpan = 12 * time.Second

// envAgent makes this program an agent.
const envAgent = "BENCH_AGENT"

// agentMain is the agent, and does not return, if this program was started as one.
func agentMain() {
	if os.Getenv(envAgent) == "" {
		return
	}
	if err := runAgent(os.Stdin, os.Stdout); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// runAgent speaks the Agent Client Protocol: it answers a prompt with the time at which it has read it, Unix ns.
func runAgent(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil // it is over
		}
		now := time.Now().UnixNano()
		m, err := acp.Decode(line)
		if err != nil || m.Kind != acp.Request {
			continue
		}
		var result any = map[string]any{}
		switch m.Method {
		case acp.MethodInitialize:
			result = map[string]any{"protocolVersion": acp.Version}
		case acp.MethodNew:
			result = map[string]any{"sessionId": "bench"}
		case acp.MethodPrompt:
			result = map[string]any{"stopReason": "end_turn"}
			_, err = fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"bench","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"%d"}}}}`+"\n", now)
		}
		if err == nil {
			_, err = out.Write(append(acp.Result(m.ID, result), '\n'))
		}
		if err != nil {
			return err
		}
	}
}

func (b *bench) agents(ctx context.Context, db string, r *report) (err error) {
	rig, err := b.newRig(ctx, db, "path")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	row := agentsRow{db: db}
	if err := b.prompts(ctx, rig, &row); err != nil {
		return err
	}
	if err := b.runnersAtRest(ctx, rig, &row); err != nil {
		return err
	}
	r.agents = append(r.agents, row)
	return nil
}

// prompts asks prompts by HTTP, as a page does, and appends, in turns.
func (b *bench) prompts(ctx context.Context, rig *rig, row *agentsRow) (err error) {
	w, err := rig.newWriter(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.client.Close()) }()
	session, ref, stop, err := b.startRunner(ctx, rig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	other, err := client.Open(ctx, rig.config("asks"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	s, err := other.Session(ctx, ref)
	if err != nil {
		return err
	}
	var appends, prompts []time.Duration
	for i := range b.opts.rounds*b.opts.appends + warmUp {
		a, err := timed(func() error {
			t, err := w.commit(ctx, 1)
			if err != nil {
				return err
			}
			return applied(ctx, t)
		})
		if err != nil {
			return err
		}
		id, begun := "prompt_"+strconv.Itoa(i), time.Now()
		if err := postPrompt(ctx, ref, session, id); err != nil {
			return err
		}
		answered, err := s.RequestTicket(id, "").Wait(ctx)
		if err != nil {
			return err
		}
		var answer struct {
			Text  string
			Error string
		}
		if err := json.Unmarshal(answered.Answer, &answer); err != nil || answer.Error != "" {
			return fmt.Errorf("the prompt was answered %s", answered.Answer)
		}
		got, err := strconv.ParseInt(answer.Text, 10, 64)
		if err != nil {
			return fmt.Errorf("the prompt was answered %s", answered.Answer)
		}
		if i >= warmUp {
			appends, prompts = append(appends, a), append(prompts, time.Unix(0, got).Sub(begun))
		}
		if i%b.opts.appends == 0 {
			b.progress.Printf("%s, agents: %d of %d prompts", rig.db, i, b.opts.rounds*b.opts.appends)
		}
	}
	row.append, row.prompt = quantilesOf(appends), quantilesOf(prompts)
	return nil
}

// startRunner starts mooring run with this program as the agent, and returns its session and a ref that asks and reads.
func (b *bench) startRunner(ctx context.Context, rig *rig) (session string, ref capability.Ref, stop func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", ref, nil, err
	}
	refFile := filepath.Join(rig.dir, "run.ref")
	cmd := exec.CommandContext(ctx, b.binary, "run", "--home", filepath.Join(rig.dir, "runner"), "--owner", "@"+filepath.Join(rig.dir, "server", operator.OwnerFile),
		"--share-to", refFile, "--", program)
	cmd.Env = append(os.Environ(), envAgent+"=1")
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, 10*time.Second
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", ref, nil, err
	}
	stop = func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("mooring run: %w: %s", err, log.String())
		}
		return nil
	}
	session, err = bufio.NewReader(out).ReadString('\n')
	var text []byte
	if err == nil {
		text, err = os.ReadFile(refFile)
	}
	if err == nil {
		ref, err = capability.ParseRef(strings.TrimSpace(string(text)))
	}
	if err != nil {
		return "", ref, nil, errors.Join(err, stop())
	}
	return strings.TrimSpace(session), ref, stop, nil
}

// postPrompt asks a prompt by HTTP.
func postPrompt(ctx context.Context, ref capability.Ref, session, id string) error {
	body := fmt.Appendf(nil, `{"request":%q,"kind":"prompt","payload":{"text":"the time, please"}}`, id)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+ref.Hosts[0]+"/api/v1/sessions/"+session+"/requests", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+ref.Text())
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err == nil && res.StatusCode != http.StatusCreated {
		err = fmt.Errorf("asking is answered with status %d: %s", res.StatusCode, text)
	}
	return err
}

// runnersAtRest has many clients hold what a runner holds while there is nothing to do: a connection, a session of its own and the
// subscription of its requests. Their agents and programs are not there: they cost the server nothing.
func (b *bench) runnersAtRest(ctx context.Context, rig *rig, row *agentsRow) (err error) {
	row.runners = b.opts.runners
	var clients []*client.Client
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, row.runners+warmUp)
	following := 0
	defer func() {
		cancel()
		for range following {
			<-ended
		}
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
	}()
	begin := func(n int) error {
		for i := range n {
			w, err := rig.newWriter(ctx)
			if err != nil {
				return err
			}
			clients = append(clients, w.client)
			batch := w.session.Batch()
			batch.Put("agent", json.RawMessage(`{"name":"bench","state":"ready"}`))
			asked, _ := batch.Ask(client.KindPrompt, map[string]string{"text": "x"}, client.AskOptions{}) // so that it is seen to follow
			if _, err := batch.CommitWait(ctx); err != nil {
				return err
			}
			seen := make(chan struct{})
			following++
			go func() {
				for r, err := range w.session.FollowRequests(ctx, client.RequestOptions{Kinds: []string{client.KindPrompt, client.KindStop, client.KindPermission}, Ended: true}) {
					if err != nil {
						ended <- err
						return
					}
					if r.ID == asked && r.State == client.RequestWithdrawn {
						close(seen)
					}
				}
				ended <- nil
			}()
			batch = w.session.Batch()
			batch.Withdraw(asked, "")
			if _, err := batch.CommitWait(ctx); err != nil {
				return err
			}
			select {
			case <-seen:
			case err := <-ended:
				following--
				return errors.Join(errors.New("a runner does not follow its session"), err)
			}
			if i%50 == 0 {
				b.progress.Printf("%s, agents: %d of %d runners", rig.db, i, n)
			}
		}
		return nil
	}
	if err := begin(warmUp); err != nil { // what is made once does not count
		return err
	}
	rested := func() (int64, error) {
		b.progress.Printf("%s, agents: %d runners at rest", rig.db, following)
		select {
		case <-time.After(min(restSpan, 2*b.span())):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		return measure.RSS(rig.pid)
	}
	before, err := rested()
	if err != nil {
		return err
	}
	if err := begin(row.runners); err != nil {
		return err
	}
	after, err := rested()
	row.rested = int(after-before) / row.runners
	return err
}
