"""An HTTP server for tests, which answers in JSON."""

import http.server
import json
import threading


class JsonServer:
    """Answers each call with what answer(path, body) gives: a status and an object, or a text as it is; None for a connection
    that breaks. `body` is the object that came, {} without one. It serves until stop()."""

    def __init__(self, answer, port=0):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                found = answer(self.path, body)
                if found is None:
                    self.close_connection = True
                    return
                status, content = found
                data = (content if isinstance(content, str) else json.dumps(content)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
