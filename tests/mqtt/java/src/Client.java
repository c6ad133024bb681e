import static java.nio.charset.StandardCharsets.UTF_8;

import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5Client;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5PubAckException;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5PubRecException;
import com.hivemq.client.mqtt.mqtt5.message.connect.Mqtt5Connect;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import org.eclipse.paho.client.mqttv3.IMqttDeliveryToken;
import org.eclipse.paho.client.mqttv3.MqttCallbackExtended;
import org.eclipse.paho.client.mqttv3.MqttClient;
import org.eclipse.paho.client.mqttv3.MqttConnectOptions;
import org.eclipse.paho.client.mqttv3.MqttException;
import org.eclipse.paho.client.mqttv3.MqttMessage;
import org.eclipse.paho.client.mqttv3.persist.MemoryPersistence;

/**
 * What a device does with the MQTT clients of Eclipse Paho and of HiveMQ for Java: Client LIBRARY
 * PORT. Each line of the input is a command with its words separated by tabs, each line of the
 * output its answer: see `../../go/main.go`.
 */
public final class Client {
  static final int EXPIRY_S = 600;
  static final BlockingQueue<String> RECEIVED = new LinkedBlockingQueue<>();
  static final Semaphore CONNECTIONS = new Semaphore(0);

  interface Device {
    boolean connect(String id, boolean kept, String[] will) throws Exception;

    int subscribe(String filter, int qos) throws Exception;

    int publish(String topic, String payload, int qos, boolean retain) throws Exception;

    void start(String topic, int qos, String[] payloads) throws Exception;

    void finish() throws Exception;

    void disconnect() throws Exception;
  }

  static void message(String topic, byte[] payload, int qos, boolean retain) {
    RECEIVED.add(topic + "\t" + new String(payload, UTF_8) + "\t" + qos + "\t" + retain);
  }

  /** MQTT 3.1.1: org.eclipse.paho.client.mqttv3. */
  static final class Paho implements Device, MqttCallbackExtended {
    final String url;
    final Semaphore delivered = new Semaphore(0);
    MqttClient client;
    int started;

    Paho(int port) {
      url = "tcp://127.0.0.1:" + port;
    }

    @Override
    public boolean connect(String id, boolean kept, String[] will) throws MqttException {
      client = new MqttClient(url, id, new MemoryPersistence());
      client.setCallback(this);
      var options = new MqttConnectOptions();
      options.setMqttVersion(MqttConnectOptions.MQTT_VERSION_3_1_1);
      options.setCleanSession(!kept);
      options.setAutomaticReconnect(true);
      options.setMaxInflight(1000);
      if (will.length > 0) options.setWill(will[0], will[1].getBytes(UTF_8), 1, false);
      var present = client.connectWithResult(options).getSessionPresent();
      CONNECTIONS.acquireUninterruptibly();
      return present;
    }

    @Override
    public int subscribe(String filter, int qos) throws MqttException {
      return client.subscribeWithResponse(filter, qos).getGrantedQos()[0];
    }

    @Override
    public int publish(String topic, String payload, int qos, boolean retain)
        throws MqttException {
      client.publish(topic, payload.getBytes(UTF_8), qos, retain);
      return 0;
    }

    @Override
    public void start(String topic, int qos, String[] payloads) throws MqttException {
      started += payloads.length;
      var publisher = client.getTopic(topic);
      for (var payload : payloads) publisher.publish(payload.getBytes(UTF_8), qos, false);
    }

    @Override
    public void finish() throws InterruptedException {
      delivered.acquire(started);
      started = 0;
    }

    @Override
    public void disconnect() throws MqttException {
      client.disconnect();
      client.close();
    }

    @Override
    public void messageArrived(String topic, MqttMessage found) {
      message(topic, found.getPayload(), found.getQos(), found.isRetained());
    }

    @Override
    public void connectComplete(boolean again, String url) {
      CONNECTIONS.release();
    }

    @Override
    public void connectionLost(Throwable cause) {
      System.err.println(cause);
    }

    @Override
    public void deliveryComplete(IMqttDeliveryToken token) {
      delivered.release();
    }
  }

  /** MQTT 5: com.hivemq:hivemq-mqtt-client. */
  static final class HiveMq implements Device {
    final int port;
    final ArrayList<CompletableFuture<?>> started = new ArrayList<>();
    Mqtt5AsyncClient client;

    HiveMq(int port) {
      this.port = port;
    }

    @Override
    public boolean connect(String id, boolean kept, String[] will) {
      var builder = Mqtt5Client.builder().identifier(id).serverHost("127.0.0.1").serverPort(port);
      builder = builder.addConnectedListener(context -> CONNECTIONS.release());
      client = builder.automaticReconnectWithDefaultConfig().buildAsync();
      client.publishes(
          MqttGlobalPublishFilter.ALL,
          found ->
              message(
                  found.getTopic().toString(),
                  found.getPayloadAsBytes(),
                  found.getQos().getCode(),
                  found.isRetain()));
      var connect = Mqtt5Connect.builder().cleanStart(!kept);
      connect.sessionExpiryInterval(kept ? EXPIRY_S : 0);
      if (will.length > 0) connect.willPublish(publishOf(will[0], will[1], 1, false));
      var present = client.connect(connect.build()).join().isSessionPresent();
      CONNECTIONS.acquireUninterruptibly();
      return present;
    }

    static Mqtt5Publish publishOf(String topic, String payload, int qos, boolean retain) {
      var publish = Mqtt5Publish.builder().topic(topic).payload(payload.getBytes(UTF_8));
      return publish.qos(MqttQos.fromCode(qos)).retain(retain).build();
    }

    @Override
    public int subscribe(String filter, int qos) {
      var subscribe = client.subscribeWith().topicFilter(filter).qos(MqttQos.fromCode(qos));
      return subscribe.send().join().getReasonCodes().get(0).getCode();
    }

    @Override
    public int publish(String topic, String payload, int qos, boolean retain) throws Exception {
      try {
        client.publish(publishOf(topic, payload, qos, retain)).get();
        return 0;
      } catch (ExecutionException failed) {
        if (failed.getCause() instanceof Mqtt5PubAckException refused) {
          return refused.getMqttMessage().getReasonCode().getCode();
        }
        if (failed.getCause() instanceof Mqtt5PubRecException refused) {
          return refused.getMqttMessage().getReasonCode().getCode();
        }
        throw failed;
      }
    }

    @Override
    public void start(String topic, int qos, String[] payloads) {
      for (var payload : payloads) {
        started.add(client.publish(publishOf(topic, payload, qos, false)));
      }
    }

    @Override
    public void finish() {
      for (var each : started) each.join();
      started.clear();
    }

    @Override
    public void disconnect() {
      client.disconnect().join();
    }
  }

  static String answer(Device device, String[] words) throws Exception {
    switch (words[0]) {
      case "connect":
        var will = Arrays.copyOfRange(words, 3, words.length);
        return "" + device.connect(words[1], words[2].equals("true"), will);
      case "subscribe":
        return "" + device.subscribe(words[1], Integer.parseInt(words[2]));
      case "publish":
        var qos = Integer.parseInt(words[3]);
        return "" + device.publish(words[1], words[2], qos, words[4].equals("true"));
      case "start":
        var payloads = Arrays.copyOfRange(words, 3, words.length);
        device.start(words[1], Integer.parseInt(words[2]), payloads);
        return "";
      case "finish":
        device.finish();
        return "";
      case "reconnected":
        CONNECTIONS.acquire();
        return "";
      case "receive":
        var found = new ArrayList<String>();
        while (found.size() < Integer.parseInt(words[1])) found.add(RECEIVED.take());
        return String.join("\t", found);
      case "disconnect":
        device.disconnect();
        return "";
      default:
        throw new IllegalArgumentException("no such command: " + words[0]);
    }
  }

  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(arguments[1]);
    Device device = arguments[0].equals("paho") ? new Paho(port) : new HiveMq(port);
    var lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
    var out = new PrintStream(System.out, true, UTF_8);
    try {
      for (var line = lines.readLine(); line != null; line = lines.readLine()) {
        out.println(answer(device, line.split("\t", -1)));
      }
      System.exit(0);
    } catch (Throwable failed) {
      failed.printStackTrace();
      System.exit(1); // although threads of the library still run
    }
  }
}
