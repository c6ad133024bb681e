// Publishes as an application does: node publish.js URL API_KEY. Prints what each call got.
import { W3bstreamClient } from "w3bstream-client-js";

const [url, key] = process.argv.slice(2);
const client = new W3bstreamClient(url, key);

try {
  const single = await client.publishSingle(
    { device_id: "device_001", event_type: "ECHO", timestamp: Date.now() },
    { temperature: 25 },
  );
  console.log(JSON.stringify({ status: single.status, data: single.data }));

  const events = Array.from({ length: 250 }, (_, number) => ({
    header: { device_id: `device_${number % 7}`, event_type: "START" },
    payload: Buffer.from(`reading ${number}`),
  }));
  const answers = [];
  client.publishEvents(events).subscribe({
    next: (answer) => answers.push({ status: answer.status, items: answer.data.length }),
    error: (error) => console.log(JSON.stringify({ error: error.message })),
    complete: () => console.log(JSON.stringify(answers)),
  });
} catch (error) {
  console.log(JSON.stringify({ status: error.response?.status, data: error.response?.data }));
}
