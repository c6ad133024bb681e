// @ts-check
/** How a device sends an event: commands and programs, as text. */
import { quoted } from '../../../core/format.js';

/**
 * Where a publisher sends to.
 * @typedef {object} Target
 * @property {string} base address of the node, without a path
 * @property {string} host of the MQTT port
 * @property {number} [mqtt] port of MQTT; absent with an external broker
 * @property {boolean} tls
 * @property {string} project
 * @property {string} token
 * @property {string} type event type
 * @property {string} payload as text
 */

const EVENT = '/srv-applet-mgr/v0/event/';

/**
 * The addresses of the node as a device sees them.
 * @param {any} boot as `GET /configuration/dashboard` answers it @param {string} hostname of this page
 */
export function addresses(boot, hostname) {
  const name = hostname.includes(':') && !hostname.startsWith('[') ? `[${hostname}]` : hostname;
  const own = `${boot.tls ? 'https' : 'http'}://${name}:${boot.ports.http}`;
  const base = (boot.publicURL || own).replace(/\/$/, '');
  return { base, host: new URL(base).hostname, mqtt: boot.ports.mqtt, tls: boot.tls };
}

/** @param {Target} to */
export const eventAddress = ({ base, project, type }) => `${base}${EVENT}${encodeURIComponent(project)}?eventType=${encodeURIComponent(type)}`;

/** The MQTT topic; its body is the payload itself. @param {Target} to */
export const topic = ({ project, token, type }) => `${project}/push/${token}/${type}`;

/** @param {Target} to */
export const curl = (to) => `curl -H ${quoted(`Authorization: Bearer ${to.token}`)} \\
  --data-raw ${quoted(to.payload)} \\
  ${quoted(eventAddress(to))}`;

/** @param {Target} to */
export function mosquitto(to) {
  const port = to.mqtt ? ` -p ${to.mqtt}${to.tls ? ' --cafile ca.pem' : ''}` : '';
  const host = to.mqtt ? quoted(to.host) : 'BROKER';
  return `mosquitto_pub -h ${host}${port} -q 1 \\
  -t ${quoted(topic(to))} \\
  -m ${quoted(to.payload)}`;
}

/** @param {Target} to */
export const python = (to) => `import urllib.request

URL = ${JSON.stringify(eventAddress(to))}
TOKEN = ${JSON.stringify(to.token)}

request = urllib.request.Request(
    URL,
    data=${JSON.stringify(to.payload)}.encode(),
    headers={"Authorization": f"Bearer {TOKEN}"},
)
with urllib.request.urlopen(request, timeout=15) as answer:
    print(answer.status, answer.read().decode())
`;

/** Text as a C string; bytes beyond ASCII in octal, which no following digit can lengthen. @param {string} text */
const cString = (text) => `"${[...new TextEncoder().encode(text)].map((byte) => {
  if (byte === 0x22 || byte === 0x5c) return `\\${String.fromCharCode(byte)}`;
  return byte < 0x20 || byte > 0x7e || byte === 0x3f ? `\\${byte.toString(8).padStart(3, '0')}` : String.fromCharCode(byte);
}).join('')}"`;

/** @param {Target} to */
export const c = (to) => `#include <curl/curl.h>
#include <stdio.h>

int main(void) {
  static const char url[] = ${cString(eventAddress(to)).replaceAll('\\077', '?')};
  static const char payload[] = ${cString(to.payload)};

  curl_global_init(CURL_GLOBAL_DEFAULT);
  CURL *curl = curl_easy_init();
  struct curl_slist *headers = NULL;
  headers = curl_slist_append(headers, ${cString(`Authorization: Bearer ${to.token}`)});
  headers = curl_slist_append(headers, "Content-Type: application/octet-stream");
  curl_easy_setopt(curl, CURLOPT_URL, url);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, payload);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)sizeof payload - 1);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, 15L);

  CURLcode result = curl_easy_perform(curl);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (result == CURLE_OK)
    printf("\\nanswered %ld\\n", status);
  else
    fprintf(stderr, "%s\\n", curl_easy_strerror(result));
  curl_slist_free_all(headers);
  curl_easy_cleanup(curl);
  curl_global_cleanup();
  return result == CURLE_OK && status == 201 ? 0 : 1;
}
`;

/** What the QR code says, as JSON. @param {Target} to @param {string} key */
export const provisioning = (to, key) => JSON.stringify({ url: `${to.base}${EVENT}${encodeURIComponent(to.project)}`, project: to.project, publisher: key, token: to.token });
