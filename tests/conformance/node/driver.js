// Tries features of the stock Node client against a cluster, several at a time, and prints as JSON
// lines what happened. It judges nothing.
//
// Arguments: name servers, the client's name, how many at a time, features.
'use strict';

const zlib = require('zlib');
const { Consumer, Producer, Message } = require('ali-ons');
const FROM_FIRST = 'CONSUME_FROM_FIRST_OFFSET';
const COUNT = 10;
const WAIT_MS = 20000;
const JOIN_MS = 12000; // The client rebalances every 10 s.

const [ namesrv, client, atOnce, ...wanted ] = process.argv.slice(2);
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const quiet = { info() {}, warn() {}, error() {}, debug() {} };

// One feature, tried with stock classes: its own topic and group, its clients, its JSON lines.
class Scenario {
  constructor(feature) {
    this.feature = feature;
    this.topic = this.group = `${client}_${feature}`;
    this.received = 0;
    this.closing = [];
    this.made = 0;
  }

  options(name) {
    const httpclient = { request() { throw new Error('no HTTP here'); } };
    return { httpclient, nameSrv: namesrv, instanceName: name, logger: quiet, onsChannel: 'CLOUD',
      accessKeyId: process.env.SIGN_AS || 'access', accessKeySecret: process.env.PASSWORD || 'secret' };
  }

  async producer(more = {}) {
    const name = `${this.group}_producer${this.made++}`;
    const producer = new Producer({ ...this.options(name), producerGroup: name, ...more });
    producer.on('error', () => {});
    await producer.ready();
    this.closing.push(producer);
    return producer;
  }

  // A consumer of the group; what `accept` refuses is asked for again.
  async consumer(name, tags, accept = () => true, more = {}) {
    const options = { consumerGroup: this.group, consumeFromWhere: FROM_FIRST };
    const consumer = new Consumer({ ...this.options(`${this.group}_${name}`), ...options, ...more });
    consumer.on('error', error => console.error(this.feature, String(error)));
    consumer.subscribe(this.topic, tags, async (message, queue) => {
      this.say('received', { id: message.originMessageId || message.msgId, topic: message.topic, broker: queue?.brokerName,
        queue: message.queueId, offset: Number(message.queueOffset), tags: message.tags,
        reconsumed: message.reconsumeTimes, consumer: name, ...about(message.body) });
      this.received++;
      return await accept(message) ? undefined : Consumer.ACTION_RETRY;
    });
    await consumer.ready();
    this.closing.push(consumer);
    return consumer;
  }

  async send(producer, message) {
    const told = about(message.body);
    const result = await producer.send(message);
    this.say('sent', { id: result.msgId, offset_id: result.msgId, status: result.sendStatus,
      broker: result.messageQueue.brokerName, queue: Number(result.messageQueue.queueId),
      offset: Number(result.queueOffset), ...told });
  }

  async sendSome(producer, count, word) {
    for (let i = 0; i < count; i++) {
      await this.send(producer, new Message(this.topic, null, `${word} ${i}`));
    }
  }

  // Wait until so many were received, or the deadline; the judge sees which it was.
  async until(count) {
    for (const end = Date.now() + WAIT_MS; Date.now() < end && this.received < count;) {
      await sleep(20);
    }
  }

  async readBack(count) {
    await this.consumer('reader', '*');
    await this.until(count);
  }

  say(what, values = {}) {
    console.log(JSON.stringify({ feature: this.feature, what, t: Date.now(), ...values }));
  }

  async close() {
    for (const each of this.closing.reverse()) {
      await Promise.race([ Promise.resolve(each.close()).catch(() => {}), sleep(2000) ]);
    }
  }
}

function about(body) {
  return { size: body.length, crc: zlib.crc32 ? zlib.crc32(body) : crc32(body),
    body: body.length > 200 ? '' : body.toString() };
}

function crc32(bytes) {
  let crc = ~0;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

const features = {
  async send_sync(s) {
    await s.sendSome(await s.producer(), COUNT, 'sync');
    await s.readBack(COUNT);
  },
  async send_compressed(s) {
    const producer = await s.producer();
    for (const size of [ 4 << 10, 20 << 10, 1 << 20 ]) {
      await s.send(producer, new Message(s.topic, null, 'compressible '.repeat(size / 13)));
    }
    await s.readBack(3);
  },
  // One message object sent several times, in each way that the client has.
  async send_again(s) {
    for (const body of [ 'two queues', 'one-way', 'batched 0', 'batched 1' ]) s.say('left_out', { body });
    const producer = await s.producer();
    let sentOn = false;
    await s.consumer('reader', '*', async message => {
      if (message.body.toString() === 'consumed' && !sentOn) {
        sentOn = true;
        await s.send(producer, message);
        message.delayTimeLevel = 1;
        await producer.send(message);
      }
      return true;
    });
    const twice = new Message(s.topic, null, 'twice');
    await s.send(producer, twice);
    await s.send(producer, twice);
    const bodies = new Message(s.topic, null, 'one body');
    await s.send(producer, bodies);
    bodies.body = Buffer.from('another body');
    await s.send(producer, bodies);
    const delayed = new Message(s.topic, null, 'delayed');
    delayed.delayTimeLevel = 1;
    await producer.send(delayed);
    await producer.send(delayed);
    const atOnce = new Message(s.topic, null, 'at once');
    await Promise.all([ 1, 2, 3 ].map(() => s.send(producer, atOnce)));
    await s.send(producer, new Message(s.topic, null, 'consumed'));
    await s.until(12);
    await sleep(1000);
  },
  async push_clustering(s) {
    await s.consumer('one', '*');
    await s.consumer('two', '*');
    await sleep(JOIN_MS);
    await s.sendSome(await s.producer(), 4 * COUNT, 'message');
    await s.until(4 * COUNT);
  },
  async push_broadcast(s) {
    await s.consumer('one', '*', undefined, { isBroadcast: true });
    await s.consumer('two', '*', undefined, { isBroadcast: true });
    await sleep(JOIN_MS);
    await s.sendSome(await s.producer(), COUNT, 'message');
    await s.until(2 * COUNT);
  },
  async tag_filter(s) {
    const producer = await s.producer();
    for (let i = 0; i < 3; i++) {
      // "Aa" and "BB" have the same Java hash: the broker can't tell them apart, the client must.
      for (const tag of [ 'TagA', 'TagB', 'TagC', 'Aa', 'BB', null ]) {
        await s.send(producer, new Message(s.topic, tag, String(tag)));
      }
    }
    await s.consumer('reader', 'TagA || TagC || Aa');
    await s.until(9);
    await sleep(500);
  },
  async resume(s) {
    await s.sendSome(await s.producer(), COUNT, 'before');
    const first = await s.consumer('first', '*');
    await s.until(COUNT);
    // It may close before its last handler has returned, and say how far it is without that.
    await sleep(1000);
    await first.close();
    await s.consumer('second', '*');
    await s.sendSome(await s.producer(), COUNT, 'after');
    await s.until(2 * COUNT);
    await sleep(1000);
  },
  async delay(s) {
    await s.consumer('reader', '*');
    const producer = await s.producer();
    for (const level of [ 0, 1, 2 ]) {
      const message = new Message(s.topic, null, `level ${level}`);
      if (level) message.delayTimeLevel = level;
      await s.send(producer, message);
    }
    await s.until(3);
  },
  async retry(s) {
    await s.consumer('reader', '*', message => message.reconsumeTimes >= 1);
    await s.sendSome(await s.producer(), 3, 'message');
    await s.until(6);
  },
};

async function run(feature) {
  const scenario = new Scenario(feature);
  try {
    await features[feature](scenario);
    scenario.say('done');
  } catch (error) {
    scenario.say('error', { error: String(error) });
  }
  await scenario.close();
}

async function main() {
  const left = [ ...wanted ];
  const line = async () => {
    while (left.length) await run(left.shift());
  };
  await Promise.all(Array.from({ length: Number(atOnce) }, line));
  process.exit(0); // The stock client's timers would keep the process.
}

process.on('unhandledRejection', () => {});
main();
