package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

// Maximum number of log lines to keep for each pod.
const mostLines = 100_000

// book holds a container's output, line by line.
type book struct {
	mutex sync.Mutex
	lines []line
	rest  []byte
}

type line struct {
	at   time.Time
	text []byte
}

// Write appends output, which may end in the middle of a line.
func (b *book) Write(text []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.rest = append(b.rest, text...)
	now := time.Now()
	for {
		whole, rest, found := bytes.Cut(b.rest, []byte("\n"))
		if !found {
			break
		}
		b.lines = append(b.lines, line{now, bytes.Clone(whole)})
		b.rest = rest
	}
	if over := len(b.lines) - mostLines; over > 0 {
		b.lines = b.lines[over:]
	}
	return len(text), nil
}

// since returns the lines written at this time or later.
func (b *book) since(start time.Time) []byte {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	var text []byte
	for _, line := range b.lines {
		if !line.at.Before(start) {
			text = append(append(text, line.text...), '\n')
		}
	}
	return text
}

// logServer is the part of kubelet's API from which the API server reads container logs.
type logServer struct {
	node     *node
	listener net.Listener
}

// newLogServer starts to listen. Its certificate is self-signed, which the API server does not verify by default.
func newLogServer(node *node) (*logServer, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey(nodeAddress, []net.IP{net.ParseIP(nodeAddress)}, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(nodeAddress, "0"), &tls.Config{
		Certificates: []tls.Certificate{pair},
	})
	return &logServer{node, listener}, err
}

func (s *logServer) port() int32 {
	address, _ := s.listener.Addr().(*net.TCPAddr)
	return int32(address.Port)
}

// Start serves until the context is canceled.
func (s *logServer) Start(ctx context.Context) error {
	context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	pages := http.NewServeMux()
	pages.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.answer)
	err := http.Serve(s.listener, pages)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (s *logServer) answer(to http.ResponseWriter, request *http.Request) {
	var start time.Time
	if text := request.FormValue("sinceTime"); text != "" {
		var err error
		if start, err = time.Parse(time.RFC3339, text); err != nil {
			http.Error(to, fmt.Sprintf("sinceTime: %v", err), http.StatusBadRequest)
			return
		}
	}
	pod := s.node.pod(podKey{Namespace: request.PathValue("namespace"), Name: request.PathValue("pod")})
	if pod == nil {
		http.NotFound(to, request)
		return
	}
	_, _ = to.Write(pod.log.since(start))
}
