//! What a device does with rumqttc: client VERSION PORT, where VERSION is `4` (MQTT 3.1.1) or `5`.
//! Each line of the input is a command with its words separated by tabs, each line of the output
//! its answer: see `../../go/main.go`.

use std::io::{stdin, BufRead};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread::{sleep, spawn, JoinHandle};
use std::time::Duration;

const EXPIRY_S: u32 = 600;

/// What comes from the server. A message of QoS 2 comes when it is released.
enum News {
    Connected(bool),
    Subscribed(u8),
    Acknowledged(u8),
    Message(String),
}

trait Device {
    fn subscribe(&mut self, filter: &str, qos: u8);
    fn publish(&mut self, topic: &str, payload: &str, qos: u8, retain: bool);
    fn disconnect(&mut self);
}

/// The module of a version of MQTT. The two halves of rumqttc have the same names for types that
/// differ.
macro_rules! version {
    ($module:ident, { $($import:item)* }, $configure:expr, $will:expr, $code_of:expr) => {
        mod $module {
            use super::*;
            use rumqttc::Outgoing;
            $($import)*
            use bytes::{SubscribeReasonCode, PubAck};

            struct Running(Client, Option<JoinHandle<()>>);

            fn qos_of(qos: u8) -> QoS {
                rumqttc_qos(qos).unwrap()
            }

            pub fn connect(
                port: u16, id: &str, kept: bool, will: &[&str], news: Sender<News>,
            ) -> Box<dyn Device> {
                let mut options = MqttOptions::new(id, "127.0.0.1", port);
                let configure: fn(&mut MqttOptions, bool) = $configure;
                configure(&mut options, kept);
                if let [topic, payload] = will {
                    let will: fn(String, String) -> LastWill = $will;
                    options.set_last_will(will(topic.to_string(), payload.to_string()));
                }
                let (client, connection) = Client::new(options, 1000);
                Box::new(Running(client, Some(spawn(move || run(connection, news)))))
            }

            fn run(mut connection: Connection, news: Sender<News>) {
                let code_of: fn(PubAck) -> u8 = $code_of;
                let mut unreleased = Vec::new();
                for event in connection.iter() {
                    let packet = match event {
                        Ok(Event::Incoming(packet)) => packet,
                        Ok(Event::Outgoing(Outgoing::Disconnect)) => return,
                        Ok(_) => continue,
                        Err(error) => {
                            eprintln!("{error}");
                            sleep(Duration::from_millis(100));
                            continue; // connects again
                        }
                    };
                    let _ = news.send(match packet {
                        Packet::ConnAck(ack) => News::Connected(ack.session_present),
                        Packet::SubAck(ack) => News::Subscribed(match ack.return_codes[0] {
                            SubscribeReasonCode::Success(qos) => qos as u8,
                            _ => 0x80,
                        }),
                        Packet::PubAck(ack) => News::Acknowledged(code_of(ack)),
                        Packet::PubComp(_) => News::Acknowledged(0),
                        Packet::Publish(found) => {
                            let topic = String::from_utf8(found.topic.into()).unwrap();
                            let payload = String::from_utf8(found.payload.into()).unwrap();
                            let (qos, retain) = (found.qos as u8, found.retain);
                            let message = format!("{topic}\t{payload}\t{qos}\t{retain}");
                            if qos == 2 {
                                unreleased.push((found.pkid, message));
                                continue;
                            }
                            News::Message(message)
                        }
                        Packet::PubRel(release) => {
                            let mut all = unreleased.iter();
                            let index = all.position(|each| each.0 == release.pkid).unwrap();
                            News::Message(unreleased.remove(index).1)
                        }
                        _ => continue,
                    });
                }
            }

            impl Device for Running {
                fn subscribe(&mut self, filter: &str, qos: u8) {
                    self.0.subscribe(filter, qos_of(qos)).unwrap();
                }

                fn publish(&mut self, topic: &str, payload: &str, qos: u8, retain: bool) {
                    self.0.publish(topic, qos_of(qos), retain, payload.to_string()).unwrap();
                }

                fn disconnect(&mut self) {
                    self.0.disconnect().unwrap();
                    self.1.take().unwrap().join().unwrap();
                }
            }
        }
    };
}

version!(
    v3,
    {
        use rumqttc::{
            mqttbytes::v4 as bytes, qos as rumqttc_qos, Client, Connection, Event, LastWill,
            MqttOptions, Packet, QoS,
        };
    },
    |options, kept| {
        options.set_clean_session(!kept);
    },
    |topic, payload| LastWill::new(topic, payload, QoS::AtLeastOnce, false),
    |_| 0
);

version!(
    v5,
    {
        use bytes::{LastWill, Packet, PubAckReason};
        use rumqttc::v5::mqttbytes::{qos as rumqttc_qos, v5 as bytes, QoS};
        use rumqttc::v5::{Client, Connection, Event, MqttOptions};
    },
    |options, kept| {
        options.set_clean_start(!kept);
        options.set_session_expiry_interval(kept.then_some(EXPIRY_S));
    },
    |topic, payload| LastWill::new(topic, payload, QoS::AtLeastOnce, false, None),
    |ack| match ack.reason {
        PubAckReason::Success => 0,
        PubAckReason::NoMatchingSubscribers => 0x10,
        PubAckReason::PayloadFormatInvalid => 0x99,
        _ => 0x80,
    }
);

/// Waits for what is asked for; messages that come meanwhile are kept.
fn next<T>(news: &Receiver<News>, messages: &mut Vec<String>, want: fn(&News) -> Option<T>) -> T {
    loop {
        let item = news.recv().unwrap();
        if let Some(found) = want(&item) {
            return found;
        }
        if let News::Message(message) = item {
            messages.push(message);
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let port = arguments[2].parse().unwrap();
    let connect = if arguments[1] == "5" {
        v5::connect
    } else {
        v3::connect
    };
    let mut news = channel().1;
    let mut messages = Vec::new();
    let mut unacknowledged = 0;
    let mut device: Option<Box<dyn Device>> = None;
    for line in stdin().lock().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split('\t').collect();
        let answer = match words[0] {
            "connect" => {
                let (sender, receiver) = channel();
                news = receiver;
                device = Some(connect(
                    port,
                    words[1],
                    words[2] == "true",
                    &words[3..],
                    sender,
                ));
                next(&news, &mut messages, |item| match item {
                    News::Connected(present) => Some(*present),
                    _ => None,
                })
                .to_string()
            }
            "subscribe" => {
                device
                    .as_mut()
                    .unwrap()
                    .subscribe(words[1], words[2].parse().unwrap());
                next(&news, &mut messages, |item| match item {
                    News::Subscribed(granted) => Some(*granted),
                    _ => None,
                })
                .to_string()
            }
            "publish" => {
                let qos = words[3].parse().unwrap();
                device
                    .as_mut()
                    .unwrap()
                    .publish(words[1], words[2], qos, words[4] == "true");
                match qos {
                    0 => 0, // has no acknowledgement
                    _ => next(&news, &mut messages, |item| match item {
                        News::Acknowledged(code) => Some(*code),
                        _ => None,
                    }),
                }
                .to_string()
            }
            "start" => {
                unacknowledged += words[3..].len();
                let (qos, device) = (words[2].parse().unwrap(), device.as_mut().unwrap());
                for payload in &words[3..] {
                    device.publish(words[1], payload, qos, false);
                }
                String::new()
            }
            "reconnected" => {
                while let Some(_) = next(&news, &mut messages, |item| match item {
                    News::Acknowledged(_) => Some(Some(())),
                    News::Connected(_) => Some(None),
                    _ => None,
                }) {
                    unacknowledged -= 1;
                }
                String::new()
            }
            "finish" => {
                while unacknowledged > 0 {
                    next(&news, &mut messages, |item| match item {
                        News::Acknowledged(_) => Some(()),
                        _ => None,
                    });
                    unacknowledged -= 1;
                }
                String::new()
            }
            "receive" => {
                let count: usize = words[1].parse().unwrap();
                while messages.len() < count {
                    if let News::Message(message) = news.recv().unwrap() {
                        messages.push(message);
                    }
                }
                messages.drain(..count).collect::<Vec<_>>().join("\t")
            }
            "disconnect" => {
                device.take().unwrap().disconnect();
                String::new()
            }
            other => panic!("no such command: {other}"),
        };
        println!("{answer}");
    }
}
