package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink"
)

const (
	// The node's address on the network of the pods.
	nodeAddress = "10.244.0.1"
	podBits     = 16
)

// network is a bridge that gives each pod a separate address.
type network struct {
	bridge *netlink.Bridge
	pods   atomic.Uint32
}

func newNetwork() (*network, error) {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "pods"
	bridge := &netlink.Bridge{LinkAttrs: attributes}
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("a bridge: %w", err)
	}
	if err := netlink.AddrAdd(bridge, onNetwork(nodeAddress)); err != nil {
		return nil, fmt.Errorf("its address: %w", err)
	}
	return &network{bridge: bridge}, netlink.LinkSetUp(bridge)
}

// address returns an address that no pod has used before.
func (n *network) address() string {
	number := n.pods.Add(1)
	return fmt.Sprintf("10.244.%d.%d", 1+number/250, 1+number%250)
}

// start runs a program with this address in a new network namespace, where all ports are free.
func (n *network) start(address string, environment []string, out io.Writer, program ...string) (*exec.Cmd, error) {
	command := exec.Command("/proc/self/exe", append([]string{"pod", address}, program...)...)
	command.Env = environment
	command.Stdout, command.Stderr = out, out
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	ready, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	if err := n.connect(command.Process.Pid); err != nil {
		_ = command.Process.Kill()
		_ = command.Wait()
		return nil, err
	}
	return command, ready.Close()
}

// connect links a process's network namespace to the bridge. The link is removed with the namespace.
func (n *network) connect(pid int) error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = fmt.Sprintf("pod%d", pid)
	attributes.MasterIndex = n.bridge.Index
	pair := &netlink.Veth{LinkAttrs: attributes, PeerName: "eth0", PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(pair); err != nil {
		return fmt.Errorf("a pair of devices: %w", err)
	}
	return netlink.LinkSetUp(pair)
}

// becomePod waits for a device in its network namespace, configures the address, and executes the program.
func becomePod(address string, program []string) error {
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for name, address := range map[string]*netlink.Addr{"lo": nil, "eth0": onNetwork(address)} {
		device, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if address != nil {
			if err := netlink.AddrAdd(device, address); err != nil {
				return fmt.Errorf("the address of %s: %w", name, err)
			}
		}
		if err := netlink.LinkSetUp(device); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(nodeAddress)}); err != nil {
		return fmt.Errorf("a route: %w", err)
	}
	return syscall.Exec(program[0], program, os.Environ())
}

func onNetwork(address string) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address).To4(), Mask: net.CIDRMask(podBits, 32)}}
}
