// What a device does with the MQTT clients of Eclipse Paho for Go: client LIBRARY PORT. Each line of
// the input is a command with its words separated by tabs, each line of the output its answer:
//
//	connect ID KEPT [TOPIC PAYLOAD]     whether there was a session; the will has QoS 1
//	subscribe FILTER QOS                the granted QoS
//	publish TOPIC PAYLOAD QOS RETAIN    the reason code of the acknowledgement
//	start TOPIC QOS PAYLOAD ...         publishes all of these without waiting
//	finish                              when all of these are acknowledged
//	reconnected                         when it has connected once more, by itself
//	receive COUNT                       topic, payload, QoS and retain flag of so many messages
//	disconnect
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	paho5 "github.com/eclipse/paho.golang/paho"
	paho3 "github.com/eclipse/paho.mqtt.golang"
)

const expiryS = 600

type client interface {
	connect(id string, kept bool, will []string) bool
	subscribe(filter string, qos byte) byte
	publish(topic string, payload string, qos byte, retain bool) byte
	start(topic string, qos byte, payloads []string)
	finish()
	disconnect()
}

var (
	received  = make(chan string, 1000)
	connected = make(chan bool, 100)
)

func message(topic string, payload []byte, qos byte, retain bool) {
	received <- fmt.Sprintf("%s\t%s\t%d\t%t", topic, payload, qos, retain)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	check(err)
	return n
}

// ---------------------------------------------------------------- MQTT 3.1.1: paho.mqtt.golang

type version3 struct {
	port    string
	client  paho3.Client
	started []paho3.Token
}

func done(token paho3.Token) {
	token.Wait()
	check(token.Error())
}

func (c *version3) connect(id string, kept bool, will []string) bool {
	options := paho3.NewClientOptions().AddBroker("tcp://127.0.0.1:" + c.port).SetClientID(id)
	options.SetProtocolVersion(4).SetCleanSession(!kept).SetMaxReconnectInterval(time.Second)
	options.SetOnConnectHandler(func(paho3.Client) { connected <- true })
	options.SetDefaultPublishHandler(func(_ paho3.Client, m paho3.Message) {
		message(m.Topic(), m.Payload(), m.Qos(), m.Retained())
	})
	if len(will) > 0 {
		options.SetWill(will[0], will[1], 1, false)
	}
	c.client = paho3.NewClient(options)
	token := c.client.Connect()
	done(token)
	<-connected
	return token.(*paho3.ConnectToken).SessionPresent()
}

func (c *version3) subscribe(filter string, qos byte) byte {
	token := c.client.Subscribe(filter, qos, nil)
	done(token)
	return token.(*paho3.SubscribeToken).Result()[filter]
}

func (c *version3) publish(topic string, payload string, qos byte, retain bool) byte {
	done(c.client.Publish(topic, qos, retain, payload))
	return 0
}

func (c *version3) start(topic string, qos byte, payloads []string) {
	for _, payload := range payloads {
		c.started = append(c.started, c.client.Publish(topic, qos, false, payload))
	}
}

func (c *version3) finish() {
	for _, token := range c.started {
		done(token)
	}
	c.started = nil
}

func (c *version3) disconnect() { c.client.Disconnect(1000) }

// ---------------------------------------------------------------- MQTT 5: paho.golang, autopaho

type version5 struct {
	port    string
	manager *autopaho.ConnectionManager
	started sync.WaitGroup
}

func (c *version5) connect(id string, kept bool, will []string) bool {
	server, err := url.Parse("mqtt://127.0.0.1:" + c.port)
	check(err)
	config := autopaho.ClientConfig{
		ServerUrls:                    []*url.URL{server},
		KeepAlive:                     60,
		CleanStartOnInitialConnection: !kept,
		ReconnectBackoff:              autopaho.NewConstantBackoff(time.Second),
		OnConnectionUp: func(_ *autopaho.ConnectionManager, ack *paho5.Connack) {
			connected <- ack.SessionPresent
		},
		ClientConfig: paho5.ClientConfig{
			ClientID: id,
			OnPublishReceived: []func(paho5.PublishReceived) (bool, error){
				func(r paho5.PublishReceived) (bool, error) {
					message(r.Packet.Topic, r.Packet.Payload, r.Packet.QoS, r.Packet.Retain)
					return true, nil
				},
			},
		},
	}
	if kept {
		config.SessionExpiryInterval = expiryS
	}
	if len(will) > 0 {
		config.WillMessage = &paho5.WillMessage{Topic: will[0], Payload: []byte(will[1]), QoS: 1}
	}
	c.manager, err = autopaho.NewConnection(context.Background(), config)
	check(err)
	return <-connected
}

func (c *version5) subscribe(filter string, qos byte) byte {
	options := []paho5.SubscribeOptions{{Topic: filter, QoS: qos}}
	ack, err := c.manager.Subscribe(context.Background(), &paho5.Subscribe{Subscriptions: options})
	check(err)
	return ack.Reasons[0]
}

func (c *version5) publish(topic string, payload string, qos byte, retain bool) byte {
	packet := &paho5.Publish{Topic: topic, Payload: []byte(payload), QoS: qos, Retain: retain}
	ack, err := c.manager.Publish(context.Background(), packet)
	if err != nil && (ack == nil || ack.ReasonCode < 0x80) {
		check(err)
	}
	if ack == nil {
		return 0
	}
	return ack.ReasonCode
}

func (c *version5) start(topic string, qos byte, payloads []string) {
	for _, payload := range payloads {
		packet := &paho5.Publish{Topic: topic, Payload: []byte(payload), QoS: qos}
		c.started.Add(1)
		go func() {
			defer c.started.Done()
			for {
				_, err := c.manager.Publish(context.Background(), packet)
				if err == nil || errors.Is(err, paho5.ErrNetworkErrorAfterStored) {
					return // the session sends it again, and does not tell when it is acknowledged
				}
				fmt.Fprintln(os.Stderr, err)
				check(c.manager.AwaitConnection(context.Background()))
			}
		}()
	}
}

func (c *version5) finish() { c.started.Wait() }

func (c *version5) disconnect() { check(c.manager.Disconnect(context.Background())) }

// ---------------------------------------------------------------- commands

func answer(c client, words []string) string {
	switch words[0] {
	case "connect":
		return fmt.Sprint(c.connect(words[1], words[2] == "true", words[3:]))
	case "subscribe":
		return fmt.Sprint(c.subscribe(words[1], byte(number(words[2]))))
	case "publish":
		code := c.publish(words[1], words[2], byte(number(words[3])), words[4] == "true")
		return fmt.Sprint(code)
	case "start":
		c.start(words[1], byte(number(words[2])), words[3:])
		return ""
	case "finish":
		c.finish()
		return ""
	case "reconnected":
		<-connected
		return ""
	case "receive":
		found := make([]string, number(words[1]))
		for i := range found {
			found[i] = <-received
		}
		return strings.Join(found, "\t")
	case "disconnect":
		c.disconnect()
		return ""
	}
	check(errors.New("no such command: " + words[0]))
	return ""
}

func main() {
	var c client = &version3{port: os.Args[2]}
	if os.Args[1] == "paho.golang" {
		c = &version5{port: os.Args[2]}
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fmt.Println(answer(c, strings.Split(lines.Text(), "\t")))
	}
}
