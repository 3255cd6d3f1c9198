// Package cacheevents publishes the contents of an engine's cache as vLLM's KV cache events, so
// that a router can send a prompt to the replica that has cached most of it. A message of ZeroMQ's
// PUB socket has three parts: the topic, a sequence number (8 bytes, big-endian, from 0), and
// MessagePack of
//
//	[seconds since 1970, [event, …]]
//	["BlockStored", [hash], parent hash or nil, [token, …], tokens of a block, nil]
//	["BlockRemoved", [hash]]
//	["AllBlocksCleared"]
//
// A hash is the 32 bytes of a block's identity. A subscriber that reads too slowly misses messages
// and detects that by the sequence number.
package cacheevents

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/tinylib/msgp/msgp"
)

// waiting is the maximum number of unpublished events; further ones are dropped, with a gap in the
// sequence numbers.
const waiting = 1 << 14

// Publisher is a [smelt.Cache] that publishes its events.
type Publisher struct {
	socket zmq4.Socket
	topic  string
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	events [][]byte // encoded as MessagePack
	lost   bool
	news   chan struct{} // holds a value if there are events
}

// Listen returns a Publisher on an endpoint such as tcp://127.0.0.1:5557, under a topic.
func Listen(endpoint, topic string) (*Publisher, error) {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Publisher{socket: zmq4.NewPub(ctx), topic: topic, cancel: cancel, done: make(chan struct{}), news: make(chan struct{}, 1)}
	if err := p.socket.Listen(endpoint); err != nil {
		cancel()
		return nil, fmt.Errorf("%s: %w", endpoint, err)
	}
	go p.publish(ctx)
	return p, nil
}

// Addr returns the address of the socket.
func (p *Publisher) Addr() net.Addr { return p.socket.Addr() }

// Close closes the socket and drops unsent events.
func (p *Publisher) Close() error {
	p.cancel()
	<-p.done
	return p.socket.Close()
}

// Stored implements [smelt.Cache].
func (p *Publisher) Stored(id [32]byte, parent *[32]byte, tokens []int32) {
	e := msgp.AppendString(msgp.AppendArrayHeader(nil, 6), "BlockStored")
	e = msgp.AppendBytes(msgp.AppendArrayHeader(e, 1), id[:])
	if parent == nil {
		e = msgp.AppendNil(e)
	} else {
		e = msgp.AppendBytes(e, parent[:])
	}
	e = msgp.AppendArrayHeader(e, uint32(len(tokens)))
	for _, t := range tokens {
		e = msgp.AppendInt32(e, t)
	}
	p.add(msgp.AppendNil(msgp.AppendInt(e, len(tokens))))
}

// Removed implements [smelt.Cache].
func (p *Publisher) Removed(id [32]byte) {
	e := msgp.AppendString(msgp.AppendArrayHeader(nil, 2), "BlockRemoved")
	p.add(msgp.AppendBytes(msgp.AppendArrayHeader(e, 1), id[:]))
}

// Cleared implements [smelt.Cache].
func (p *Publisher) Cleared() {
	p.add(msgp.AppendString(msgp.AppendArrayHeader(nil, 1), "AllBlocksCleared"))
}

func (p *Publisher) add(event []byte) {
	p.mu.Lock()
	if len(p.events) < waiting {
		p.events = append(p.events, event)
	} else {
		p.lost = true
	}
	p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// publish sends batches of all waiting events until ctx ends.
func (p *Publisher) publish(ctx context.Context) {
	defer close(p.done)
	for number := uint64(0); ; number++ {
		select {
		case <-p.news:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		events, lost := p.events, p.lost
		p.events, p.lost = nil, false
		p.mu.Unlock()
		batch := msgp.AppendFloat64(msgp.AppendArrayHeader(nil, 2), float64(time.Now().UnixMicro())/1e6)
		batch = msgp.AppendArrayHeader(batch, uint32(len(events)))
		for _, e := range events {
			batch = append(batch, e...)
		}
		_ = p.socket.SendMulti(zmq4.NewMsgFrom([]byte(p.topic), binary.BigEndian.AppendUint64(nil, number), batch)) // a disconnected subscriber misses it
		if lost {
			number++
		}
	}
}
