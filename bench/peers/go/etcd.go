package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcd is not a log: an append is a put of the next of rotatingKeys keys, and a log to read is a range
// of keys, one for each entry.
const rotatingKeys = 1000
const putsOfTransaction = 128 // etcd's own default maximum
const fillers = 8
const putTimeout = 30 * time.Second
const pageBytesMax, pageEntriesMax = 1 << 20, 10000

type etcdPeer struct {
	servers []server
	admin   *clientv3.Client
}

func newEtcd(servers []server) *etcdPeer { return &etcdPeer{servers: servers} }

func (p *etcdPeer) dial(addresses ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: addresses, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
}

func (p *etcdPeer) addresses() (all []string) {
	for _, s := range p.servers {
		all = append(all, s.address)
	}
	return all
}

func (p *etcdPeer) toLeader() (*clientv3.Client, error) {
	leader, _ := p.leader("")
	for _, s := range p.servers {
		if s.name == leader {
			return p.dial(s.address)
		}
	}
	return nil, errors.New("etcd has no leader")
}

func (p *etcdPeer) create(string) (err error) {
	if p.admin == nil {
		p.admin, err = p.dial(p.addresses()...)
	}
	return err
}

func (p *etcdPeer) leader(string) (name string, whole bool) {
	agreeing := 0
	var led uint64
	for _, s := range p.servers {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		status, err := p.admin.Status(ctx, s.address)
		cancel()
		if err != nil || status.Leader == 0 {
			continue
		}
		if status.Leader == status.Header.MemberId {
			name = s.name
		}
		if led == 0 || led == status.Leader {
			led = status.Leader
			agreeing++
		}
	}
	return name, name != "" && agreeing == len(p.servers)
}

// putter returns a function that puts the next key and waits for the outcome.
func putter(client *clientv3.Client, r request) func() error {
	value := string(body(r.BodyBytes))
	var number atomic.Int64
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), putTimeout)
		defer cancel()
		key := fmt.Sprintf("%s/%d", r.Log, number.Add(1)%rotatingKeys)
		_, err := client.Put(ctx, key, value)
		return err
	}
}

func (p *etcdPeer) load(r request, begin, end time.Time) ([]time.Duration, int, error) {
	client, err := p.toLeader()
	if err != nil {
		return nil, 0, err
	}
	defer client.Close()
	put := putter(client, r)
	each := make([][]time.Duration, r.InFlight)
	var failed atomic.Int64
	var group sync.WaitGroup
	for k := range each {
		group.Go(func() {
			for at := time.Now(); at.Before(end); at = time.Now() {
				err := put()
				now := time.Now()
				if err != nil {
					failed.Add(1)
				} else if !now.Before(begin) && now.Before(end) {
					each[k] = append(each[k], now.Sub(at))
				}
			}
		})
	}
	group.Wait()
	var all []time.Duration
	for _, some := range each {
		all = append(all, some...)
	}
	return all, int(failed.Load()), nil
}

func keyOf(log string, number int) string { return fmt.Sprintf("%s/%010d", log, number) }

func (p *etcdPeer) fill(r request) error {
	client, err := p.toLeader()
	if err != nil {
		return err
	}
	defer client.Close()
	value := string(body(r.BodyBytes))
	var next atomic.Int64
	var group sync.WaitGroup
	failures := make(chan error, fillers)
	for range fillers {
		group.Go(func() {
			for {
				end := int(next.Add(putsOfTransaction))
				var puts []clientv3.Op
				for n := end - putsOfTransaction; n < min(end, r.Entries); n++ {
					puts = append(puts, clientv3.OpPut(keyOf(r.Log, n), value))
				}
				if len(puts) == 0 {
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), putTimeout)
				_, err := client.Txn(ctx).Then(puts...).Commit()
				cancel()
				if err != nil {
					failures <- err
					return
				}
			}
		})
	}
	group.Wait()
	close(failures)
	return <-failures
}

// read gets one page of keys after the other; each is linearizable, as etcd's reads are by default.
func (p *etcdPeer) read(r request) (float64, error) {
	client, err := p.toLeader()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	if _, err := client.Get(ctx, "connected"); err != nil {
		return 0, err
	}
	page := int64(min(pageEntriesMax, max(1, pageBytesMax/r.BodyBytes)))
	began := time.Now()
	end := clientv3.GetPrefixRangeEnd(r.Log + "/")
	for n := 0; n < r.Entries; {
		got, err := client.Get(ctx, keyOf(r.Log, n), clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return 0, err
		}
		if len(got.Kvs) == 0 {
			return 0, fmt.Errorf("log %s ends after %d entries", r.Log, n)
		}
		for _, each := range got.Kvs {
			if len(each.Value) != r.BodyBytes {
				return 0, fmt.Errorf("key %s has %d bytes", each.Key, len(each.Value))
			}
		}
		n += len(got.Kvs)
	}
	return time.Since(began).Seconds(), nil
}

func (p *etcdPeer) pacer(r request) (func() error, error) {
	client, err := p.dial(p.addresses()...)
	if err != nil {
		return nil, err
	}
	return putter(client, r), nil
}
