package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The library's own default is 4,000; a load bounds itself.
const pendingMax = 20000
const replicas = 3
const appendTimeout = 60 * time.Second

// natsPeer has a stream of one subject for each log.
type natsPeer struct {
	servers []server
	admin   jetstream.JetStream
}

func newNats(servers []server) *natsPeer {
	return &natsPeer{servers: servers}
}

func (p *natsPeer) urls() (urls string) {
	for k, s := range p.servers {
		if k > 0 {
			urls += ","
		}
		urls += "nats://" + s.address
	}
	return urls
}

func connect(urls string) (jetstream.JetStream, error) {
	quiet := func(*nats.Conn, *nats.Subscription, error) {}
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.DontRandomize(),
		nats.RetryOnFailedConnect(true), nats.ErrorHandler(quiet))
	if err != nil {
		return nil, err
	}
	return jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(pendingMax))
}

// toLeader returns a connection to the server that leads a log.
func (p *natsPeer) toLeader(log string) (jetstream.JetStream, error) {
	leader, _ := p.leader(log)
	for _, s := range p.servers {
		if s.name == leader {
			return connect("nats://" + s.address)
		}
	}
	return nil, fmt.Errorf("log %s has no leader", log)
}

func (p *natsPeer) create(log string) error {
	if p.admin == nil {
		js, err := connect(p.urls())
		if err != nil {
			return err
		}
		p.admin = js
	}
	end := time.Now().Add(60 * time.Second)
	for {
		err := p.createOnce(log)
		if err == nil || time.Now().After(end) {
			return err
		}
		time.Sleep(200 * time.Millisecond) // the servers are still forming their group
	}
}

// createOnce has its own deadline: servers that do not know their leader yet drop the request.
func (p *natsPeer) createOnce(log string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err := p.admin.CreateStream(ctx, jetstream.StreamConfig{
		Name: log, Subjects: []string{log}, Replicas: replicas, Storage: jetstream.FileStorage,
	})
	return err
}

func (p *natsPeer) leader(log string) (string, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	stream, err := p.admin.Stream(ctx, log)
	if err != nil || stream.CachedInfo().Cluster == nil {
		return "", false
	}
	current := 1
	for _, each := range stream.CachedInfo().Cluster.Replicas {
		if each.Current && !each.Offline {
			current++
		}
	}
	name := stream.CachedInfo().Cluster.Leader
	return name, name != "" && current == replicas
}

func (p *natsPeer) load(r request, begin, end time.Time) ([]time.Duration, int, error) {
	js, err := p.toLeader(r.Log)
	if err != nil {
		return nil, 0, err
	}
	defer js.Conn().Close()
	if r.InFlight == 1 {
		return oneByOne(js, r, begin, end)
	}
	return window(js, r, begin, end)
}

func oneByOne(js jetstream.JetStream, r request, begin, end time.Time) ([]time.Duration, int, error) {
	var latencies []time.Duration
	failed, data := 0, body(r.BodyBytes)
	for {
		at := time.Now()
		if !at.Before(end) {
			return latencies, failed, nil
		}
		_, err := js.Publish(context.Background(), r.Log, data)
		now := time.Now()
		if err != nil {
			failed++
		} else if !now.Before(begin) && now.Before(end) {
			latencies = append(latencies, now.Sub(at))
		}
	}
}

// sent is an append that waits for its acknowledgement.
type sent struct {
	future jetstream.PubAckFuture
	at     time.Time
}

// await waits for one acknowledgement, of bounded duration.
func await(future jetstream.PubAckFuture, timer *time.Timer) error {
	timer.Reset(appendTimeout)
	select {
	case <-future.Ok():
		return nil
	case err := <-future.Err():
		return err
	case <-timer.C:
		return context.DeadlineExceeded
	}
}

// window keeps r.InFlight appends in flight. Acknowledgements of a stream come in order.
func window(js jetstream.JetStream, r request, begin, end time.Time) ([]time.Duration, int, error) {
	queue := make(chan sent, r.InFlight)
	slots := make(chan struct{}, r.InFlight)
	var latencies []time.Duration
	failed := 0
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		timer := time.NewTimer(appendTimeout)
		defer timer.Stop()
		for s := range queue {
			err := await(s.future, timer)
			now := time.Now()
			if err != nil {
				failed++
			} else if !now.Before(begin) && now.Before(end) {
				latencies = append(latencies, now.Sub(s.at))
			}
			<-slots
		}
	}()
	data := body(r.BodyBytes)
	refused := 0
	for time.Now().Before(end) {
		slots <- struct{}{}
		at := time.Now()
		future, err := js.PublishAsync(r.Log, data, jetstream.WithStallWait(10*time.Second))
		if err != nil {
			refused++
			<-slots
			continue
		}
		queue <- sent{future, at}
	}
	close(queue)
	<-finished
	return latencies, failed + refused, nil
}

func (p *natsPeer) fill(r request) error {
	js, err := p.toLeader(r.Log)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	queue := make(chan jetstream.PubAckFuture, 4000)
	finished := make(chan error)
	go func() {
		var first error
		timer := time.NewTimer(appendTimeout)
		defer timer.Stop()
		for future := range queue {
			if err := await(future, timer); err != nil && first == nil {
				first = err
			}
		}
		finished <- first
	}()
	data := body(r.BodyBytes)
	for n := 0; n < r.Entries && err == nil; n++ {
		var future jetstream.PubAckFuture
		future, err = js.PublishAsync(r.Log, data, jetstream.WithStallWait(20*time.Second))
		if err == nil {
			queue <- future
		}
	}
	close(queue)
	if failed := <-finished; failed != nil {
		return failed
	}
	return err
}

// read uses an ordered pull consumer; the connection and the consumer exist before the clock starts.
func (p *natsPeer) read(r request) (float64, error) {
	js, err := p.toLeader(r.Log)
	if err != nil {
		return 0, err
	}
	defer js.Conn().Close()
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	stream, err := js.Stream(ctx, r.Log)
	if err != nil {
		return 0, err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	finished := make(chan error, 1)
	n := 0
	running, err := consumer.Consume(func(m jetstream.Msg) {
		if n == r.Entries {
			return
		}
		n++
		if len(m.Data()) != r.BodyBytes {
			n = r.Entries
			finished <- fmt.Errorf("a body of %d bytes", len(m.Data()))
		} else if n == r.Entries {
			finished <- nil
		}
	}, jetstream.PullMaxMessages(2000))
	if err != nil {
		return 0, err
	}
	defer running.Stop()
	select {
	case err = <-finished:
		return time.Since(began).Seconds(), err
	case <-ctx.Done():
		return 0, fmt.Errorf("log %s was not read in 120 s", r.Log)
	}
}

func (p *natsPeer) pacer(r request) (func() error, error) {
	js, err := connect(p.urls())
	if err != nil {
		return nil, err
	}
	data := body(r.BodyBytes)
	return func() error {
		future, err := js.PublishAsync(r.Log, data, jetstream.WithStallWait(60*time.Second))
		if err != nil {
			return err
		}
		timer := time.NewTimer(appendTimeout)
		defer timer.Stop()
		return await(future, timer)
	}, nil
}
