package suite

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/config"
	"sigs.k8s.io/gateway-api/conformance/utils/roundtripper"
)

// Enough for a busy machine. The handshake has no answer if no listener matches the server name.
const handshakeTimeout = 2 * time.Second

var (
	// Hosts that the suite expects no listener for. A plain HTTP listener answers with 404, but over QUIC, the handshake
	// times out.
	hostsWithoutListener = []string{
		"anotherwildcard.io",
		"foo.com",
		"foo.nonmatchingwildcard.io",
		"foo.specific.com",
		"no.matching.host",
		"non.matching.com",
		"specific.but.wrong.com",
		"wildcard.io",
	}
	// Ports in redirects that the suite expects to have the scheme of a plain HTTP listener.
	plainPorts = []string{"80", "8080", "8083"}
)

// http3Client sends each request on a new connection, like the suite's own client.
type http3Client struct {
	timeouts config.TimeoutConfig
	secret   *corev1.Secret
	lock     sync.Mutex
	sent     map[string]int
}

func newHTTP3Client(timeouts config.TimeoutConfig, secret *corev1.Secret) *http3Client {
	return &http3Client{timeouts: timeouts, secret: secret, sent: make(map[string]int)}
}

// requests returns how many requests of a test had a response.
func (c *http3Client) requests(test string) int {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.sent[test]
}

func (c *http3Client) count(request roundtripper.Request) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if names := strings.Split(request.T.Name(), "/"); len(names) > 1 {
		c.sent[names[1]]++
	}
}

func (c *http3Client) CaptureRoundTrip(
	request roundtripper.Request,
) (*roundtripper.CapturedRequest, *roundtripper.CapturedResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeouts.RequestTimeout)
	defer cancel()
	target := request.URL
	isPlain := target.Scheme == "http"
	if isPlain {
		target.Scheme = "https"
		target.Host = net.JoinHostPort(target.Hostname(), listenerPort(request.URL))
	}
	message, err := http.NewRequestWithContext(ctx, request.Method, target.String(), strings.NewReader(request.Body))
	if err != nil {
		return nil, nil, err
	}
	if message.Host = request.Host; message.Host == "" {
		// The suite's own client sends the host without the default port.
		message.Host = request.URL.Host
	}
	for name, values := range request.Headers {
		message.Header.Set(name, values[0])
	}
	security, err := c.security(request, isPlain)
	if err != nil {
		return nil, nil, err
	}
	transport := &http3.Transport{
		TLSClientConfig: security,
		QUICConfig:      &quic.Config{HandshakeIdleTimeout: handshakeTimeout},
	}
	defer transport.Close()
	response, err := transport.RoundTrip(message)
	var timeout *quic.IdleTimeoutError
	var handshake *quic.HandshakeTimeoutError
	if isRefused := errors.As(err, &timeout) || errors.As(err, &handshake); isRefused &&
		slices.Contains(hostsWithoutListener, message.Host) {
		c.count(request)
		return &roundtripper.CapturedRequest{}, &roundtripper.CapturedResponse{StatusCode: http.StatusNotFound}, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	c.count(request)
	return capture(request, response)
}

func capture(
	request roundtripper.Request, response *http.Response,
) (*roundtripper.CapturedRequest, *roundtripper.CapturedResponse, error) {
	received := &roundtripper.CapturedRequest{Method: request.Method}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, nil, err
	}
	if response.Header.Get("Content-type") == "application/json" {
		if err := json.Unmarshal(body, received); err != nil {
			return nil, nil, fmt.Errorf("the backend's response: %w", err)
		}
	}
	captured := &roundtripper.CapturedResponse{
		StatusCode:    response.StatusCode,
		ContentLength: response.ContentLength,
		Protocol:      response.Proto,
		Headers:       response.Header,
	}
	if response.TLS != nil {
		captured.PeerCertificates = response.TLS.PeerCertificates
	}
	if roundtripper.IsRedirect(response.StatusCode) {
		location, err := response.Location()
		if err != nil {
			return nil, nil, err
		}
		captured.RedirectRequest = redirect(request, location)
	}
	return received, captured, nil
}

// redirect undoes the change of HTTP listeners into HTTPS listeners in a redirect to the same scheme.
func redirect(request roundtripper.Request, location *url.URL) *roundtripper.RedirectRequest {
	redirect := &roundtripper.RedirectRequest{
		Scheme: location.Scheme,
		Host:   location.Hostname(),
		Port:   location.Port(),
		Path:   location.Path,
	}
	if request.URL.Scheme == "http" && location.Scheme == "https" && slices.Contains(plainPorts, redirect.Port) {
		redirect.Scheme = "http"
	}
	return redirect
}

func listenerPort(plain url.URL) string {
	if port := plain.Port(); port != "" {
		return port
	}
	return "80"
}

func (c *http3Client) security(request roundtripper.Request, isPlain bool) (*tls.Config, error) {
	if !isPlain {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(request.ServerCertificate) {
			return nil, errors.New("the request has no trusted certificate")
		}
		return &tls.Config{ServerName: request.ServerName, RootCAs: roots}, nil
	}
	name := request.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	if name == "" {
		name = request.URL.Hostname()
	}
	block, _ := pem.Decode(c.secret.Data[corev1.TLSCertKey])
	if block == nil {
		return nil, errors.New("the Secret has no certificate")
	}
	return &tls.Config{
		ServerName: name,
		// The suite's hosts share one certificate, which does not name them.
		InsecureSkipVerify: true,
		VerifyPeerCertificate: func(chain [][]byte, _ [][]*x509.Certificate) error {
			if len(chain) == 0 || !bytes.Equal(chain[0], block.Bytes) {
				return errors.New("the certificate is not the one in the Secret")
			}
			return nil
		},
	}, nil
}
