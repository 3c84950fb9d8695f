// peerclient: the client of NATS JetStream and etcd in `python -m bench.peers`.
//
//	peerclient -peer nats|etcd -servers n0=127.0.0.1:4222,n1=...
//
// It reads requests from stdin and answers each on stdout, one JSON object a line; see
// bench/peers/client.py. It exits when its stdin ends.
package main

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A request is the union of the fields of all requests.
type request struct {
	Do        string  `json:"do"`
	Log       string  `json:"log"`
	InFlight  int     `json:"in_flight"`
	BodyBytes int     `json:"body_bytes"`
	Entries   int     `json:"entries"`
	WarmUpS   float64 `json:"warm_up_s"`
	Seconds   float64 `json:"seconds"`
	PerSecond int     `json:"per_second"`
}

type answer map[string]any

type server struct{ name, address string }

// A peer is one kind of group. Its logs are named; every append waits for its acknowledgement.
type peer interface {
	create(log string) error
	leader(log string) (name string, whole bool)
	// load keeps appends in flight until end; it counts those acknowledged from begin on.
	load(r request, begin, end time.Time) (latencies []time.Duration, failed int, err error)
	fill(r request) error
	// read reads a whole log from its start; it checks the number and the size of the bodies.
	read(r request) (seconds float64, err error)
	// pacer returns a function that appends once and waits for the outcome, whoever leads.
	pacer(r request) (func() error, error)
}

func main() {
	kind := flag.String("peer", "nats", "nats or etcd")
	list := flag.String("servers", "", "NAME=HOST:PORT, comma separated")
	flag.Parse()
	var servers []server
	for _, each := range strings.Split(*list, ",") {
		name, address, _ := strings.Cut(each, "=")
		servers = append(servers, server{name, address})
	}
	var p peer
	switch *kind {
	case "nats":
		p = newNats(servers)
	case "etcd":
		p = newEtcd(servers)
	default:
		fmt.Fprintln(os.Stderr, "peerclient: unknown peer", *kind)
		os.Exit(2)
	}
	serve(p)
}

func serve(p peer) {
	in := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	var paced *pace
	for in.Scan() {
		var r request
		err := json.Unmarshal(in.Bytes(), &r)
		var a answer
		if err == nil {
			a, err = answerTo(p, r, &paced)
		}
		if err != nil {
			a = answer{"error": err.Error()}
		}
		if out.Encode(a) != nil {
			return
		}
	}
}

func answerTo(p peer, r request, paced **pace) (answer, error) {
	switch r.Do {
	case "create":
		return answer{}, p.create(r.Log)
	case "leader":
		name, whole := p.leader(r.Log)
		return answer{"leader": name, "whole": whole}, nil
	case "append":
		begin := time.Now().Add(seconds(r.WarmUpS))
		latencies, failed, err := p.load(r, begin, begin.Add(seconds(r.Seconds)))
		return summary(latencies, failed), err
	case "fill":
		return answer{}, p.fill(r)
	case "read":
		took, err := p.read(r)
		return answer{"seconds": took}, err
	case "pace":
		one, err := p.pacer(r)
		if err == nil {
			*paced = startPace(one, r.PerSecond)
		}
		return answer{}, err
	case "acknowledgements":
		return (*paced).take(), nil
	case "rest":
		(*paced).stop()
		return answer{}, nil
	}
	return nil, fmt.Errorf("unknown request %q", r.Do)
}

func summary(latencies []time.Duration, failed int) answer {
	slices.Sort(latencies)
	a := answer{"acknowledged": len(latencies), "failed": failed, "p50_ms": nil, "p99_ms": nil}
	if n := len(latencies); n > 0 {
		a["p50_ms"] = latencies[n/2].Seconds() * 1000
		a["p99_ms"] = latencies[n*99/100].Seconds() * 1000
	}
	return a
}

// pace begins appends at a steady rate, without waiting for earlier ones.
type pace struct {
	mutex           sync.Mutex
	acknowledged    [][2]int64
	failed, waiting int
	done            chan struct{}
}

const waitingMax = 20000

func startPace(one func() error, perSecond int) *pace {
	p := &pace{done: make(chan struct{})}
	go p.run(one, perSecond)
	return p
}

func (p *pace) run(one func() error, perSecond int) {
	began, begun := time.Now(), 0
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-ticker.C:
		}
		due := int(time.Since(began).Seconds() * float64(perSecond))
		p.mutex.Lock()
		for n := min(due-begun, waitingMax-p.waiting); n > 0; n-- {
			p.waiting++
			go p.append(one)
		}
		p.mutex.Unlock()
		begun = due
	}
}

func (p *pace) append(one func() error) {
	begun := time.Now().UnixNano()
	err := one()
	at := time.Now().UnixNano()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.waiting--
	if err != nil {
		p.failed++
		return
	}
	p.acknowledged = append(p.acknowledged, [2]int64{begun, at})
}

// take returns what was acknowledged since the last call: [begun, acknowledged] in Unix ns.
func (p *pace) take() answer {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	some := p.acknowledged
	if some == nil {
		some = [][2]int64{}
	}
	p.acknowledged = nil
	return answer{"acknowledgements": some, "failed": p.failed}
}

func (p *pace) stop() { close(p.done) }

func body(bytes int) []byte {
	b := make([]byte, bytes)
	rand.Read(b)
	return b
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
