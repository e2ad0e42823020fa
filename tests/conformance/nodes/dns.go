package main

import (
	"net"

	"github.com/miekg/dns"
)

// answerNames replaces CoreDNS. It answers every query with the client's own address.
func answerNames() error {
	handler := func(to dns.ResponseWriter, question *dns.Msg) {
		answer := new(dns.Msg).SetReply(question)
		client, _ := to.RemoteAddr().(*net.UDPAddr)
		for _, asked := range question.Question {
			if asked.Qtype == dns.TypeA && client != nil {
				header := dns.RR_Header{Name: asked.Name, Rrtype: dns.TypeA, Class: dns.ClassINET}
				answer.Answer = append(answer.Answer, &dns.A{Hdr: header, A: client.IP})
			}
		}
		_ = to.WriteMsg(answer)
	}
	server := &dns.Server{Addr: ":53", Net: "udp", Handler: dns.HandlerFunc(handler)}
	return server.ListenAndServe()
}
