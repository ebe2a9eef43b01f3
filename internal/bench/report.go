package main

// The report: the tables, and their arithmetic.

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report gathers the lines of all tables.
type report struct {
	throughput []throughputRow
	latency    []latencyRow
	replay     []replayRow
	deletes    []deletesRow
	beside     []besideRow
	keys       []keysRow
	follow     []followRow
	patch      []patchRow
	tasks      []tasksRow
	agents     []agentsRow
}

// write prints the tables in Markdown.
func (r *report) write(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s, %d processors, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	if len(r.throughput) > 0 {
		b.WriteString("\nOps a second, durable in the outbox and acked, against a bare program writing the same rows\n\n" +
			"| database | writers | batch | at once | path | bare, same batches | ratio | bare, best INSERT | ratio | bare, best | ratio | the best was |\n" +
			"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n")
		for _, t := range r.throughput {
			fmt.Fprintf(&b, "| %s | %d | %d | %d | %.0f | %.0f | %.2f | %.0f | %.2f | %.0f | %.2f | %v |\n",
				t.db, t.writers, t.batch, t.atOnce, t.path, t.same, t.toSame, t.insert, t.toInsert, t.best, t.toBest, t.technique)
		}
	}
	if len(r.latency) > 0 {
		b.WriteString("\nOne writer's append, Commit to ack, against an outbox commit, a server commit and an echo (ms)\n\n" +
			"| database | | append | sum | ratio | outbox commit | server commit | echo |\n" +
			"|---|---|---:|---:|---:|---:|---:|---:|\n")
		for _, l := range r.latency {
			for _, q := range []struct {
				name string
				of   func(quantiles) time.Duration
			}{
				{"p50", func(q quantiles) time.Duration { return q.p50 }},
				{"p99", func(q quantiles) time.Duration { return q.p99 }},
			} {
				a, s := q.of(l.append), q.of(l.sum)
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %.2f | %s | %s | %s |\n", l.db, q.name, ms(a), ms(s),
					float64(a)/float64(s), ms(q.of(l.outbox)), ms(q.of(l.commit)), ms(q.of(l.echo)))
			}
		}
	}
	if len(r.replay) > 0 {
		b.WriteString("\nA reconnect that redeems and replays what was queued, against appending it online\n\n" +
			"| database | ops | batch | online | replayed | ratio |\n|---|---:|---:|---:|---:|---:|\n")
		for _, p := range r.replay {
			fmt.Fprintf(&b, "| %s | %d | %d | %.2f s | %.2f s | %.2f |\n", p.db, p.ops, p.batch, p.online.Seconds(), p.replay.Seconds(), p.ratio)
		}
	}
	if len(r.deletes) > 0 {
		fmt.Fprintf(&b, "\nSessions of %d events deleted a second, Commit to ack\n\n| database | at once | deletes |\n|---|---:|---:|\n", deleteEvents)
		for _, d := range r.deletes {
			fmt.Fprintf(&b, "| %s | %s | %.0f |\n", d.db, d.how(), d.rate)
		}
	}
	if len(r.beside) > 0 {
		fmt.Fprintf(&b, "\np99 of the appends of %d others (ms), quiet and beside work, and how long that takes (s)\n\n"+
			"| database | beside | quiet | beside it | ratio | at most | takes | at most |\n|---|---|---:|---:|---:|---:|---:|---:|\n", besideWriters)
		limit := func(v float64) string {
			if v == 0 {
				return "–"
			}
			return fmt.Sprint(v)
		}
		for _, d := range r.beside {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %.2f | %s | %.2f | %s |\n", d.db, d.what, ms(d.quiet), ms(d.beside), d.ratio(), limit(d.aim), d.took.Seconds(), limit(d.within.Seconds()))
		}
	}
	if len(r.keys) > 0 {
		b.WriteString("\nA session of very many own keys, beside one of 1,000 in a database of its own (ms)\n\n| database | | 1,000 | many | ratio | at most |\n|---|---|---:|---:|---:|---:|\n")
		for _, k := range r.keys {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %.2f | %v |\n", k.db, k.what, ms(k.few), ms(k.many), k.ratio(), k.aim)
		}
	}
	if len(r.follow) > 0 {
		fmt.Fprintf(&b, "\nWhat the server does for each event and each of %d subscribers\n\n"+
			"| database | subscription of | CPU, µs | of all's | bytes | of all's | at most |\n|---|---|---:|---:|---:|---:|---:|\n", followers)
		for _, f := range r.follow {
			fmt.Fprintf(&b, "| %s | %s | %.2f | %.2f | %.0f | %.2f | %v |\n", f.db, f.what, float64(f.cpu)/float64(time.Microsecond), f.cpuToAll, f.bytes, f.bytesToAll, followAim)
		}
	}
	if len(r.patch) > 0 {
		b.WriteString("\nBytes of a patch of one member of a value of 100 KB, and of a put of that member alone\n\n" +
			"| database | | put | patch | ratio | at most |\n|---|---|---:|---:|---:|---:|\n")
		for _, p := range r.patch {
			aim := "–"
			if p.aim > 0 {
				aim = fmt.Sprint(p.aim)
			}
			fmt.Fprintf(&b, "| %s | %s | %.0f | %.0f | %.2f | %s |\n", p.db, p.what, p.put, p.patch, p.patch/p.put, aim)
		}
	}
	if len(r.agents) > 0 {
		b.WriteString("\nA prompt, from its POST until the agent of mooring run has read it, beside an append (ms), and the server's memory of a runner at rest (KB)\n\n" +
			"| database | | append | prompt | ratio | at most |\n|---|---|---:|---:|---:|---:|\n")
		for _, a := range r.agents {
			fmt.Fprintf(&b, "| %s | p50 of a prompt | %s | %s | %.2f | %d |\n", a.db, ms(a.append.p50), ms(a.prompt.p50), float64(a.prompt.p50)/float64(a.append.p50), promptAim)
			fmt.Fprintf(&b, "| %s | p99 of a prompt | %s | %s | %.2f | – |\n", a.db, ms(a.append.p99), ms(a.prompt.p99), float64(a.prompt.p99)/float64(a.append.p99))
			fmt.Fprintf(&b, "| %s | each of %d runners | – | %.1f | – | %d |\n", a.db, a.runners, float64(a.rested)/1024, runnerAim>>10)
		}
	}
	if len(r.tasks) > 0 {
		b.WriteString("\nA task sent by A2A, beside the batch of the same op (ms)\n\n| database | | batch | task | ratio | at most |\n|---|---|---:|---:|---:|---:|\n")
		for _, t := range r.tasks {
			fmt.Fprintf(&b, "| %s | p50 of a task | %s | %s | %.2f | %v |\n", t.db, ms(t.batch.p50), ms(t.task.p50), float64(t.task.p50)/float64(t.batch.p50), taskAim)
			fmt.Fprintf(&b, "| %s | p99 of a task | %s | %s | %.2f | – |\n", t.db, ms(t.batch.p99), ms(t.task.p99), float64(t.task.p99)/float64(t.batch.p99))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }

// quantiles of a series of durations.
type quantiles struct{ p50, p99 time.Duration }

func quantilesOf(list []time.Duration) quantiles {
	sorted := slices.Sorted(slices.Values(list))
	at := func(share float64) time.Duration { return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)] }
	return quantiles{p50: at(0.50), p99: at(0.99)}
}
