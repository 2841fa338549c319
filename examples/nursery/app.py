"""The site of a plant nursery: a page of the plants in stock, and a form for gardeners.

Suppliers send plants to the embedded plant store: ``POST /api/plants``. The gardener
``flora`` logs in with the password NURSERY_PASSWORD. Suppliers send the token NURSERY_TOKEN.
"""

import secrets
from datetime import UTC, datetime
from itertools import islice

from flask import Blueprint, Flask, current_app, flash, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue
from flask_login import (
    LoginManager,
    UserMixin,
    current_user,
    login_required,
    login_user,
    logout_user,
)
from flask_sqlalchemy import SQLAlchemy
from flask_wtf import CSRFProtect, FlaskForm
from sqlalchemy import BigInteger
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from werkzeug.security import check_password_hash, generate_password_hash
from wtforms import IntegerField, PasswordField, StringField
from wtforms.validators import InputRequired, Length, Regexp, ValidationError

from plantstore import (
    Plant,
    PlantExists,
    SQLStore,
    StaticTokens,
    Store,
    StoreUnavailable,
    create_blueprint,
    plant_added,
)

SHOWN = 60  # Plants per page.


class Base(DeclarativeBase):
    """The base class of the site's own tables."""


db = SQLAlchemy(model_class=Base)
csrf = CSRFProtect()
login = LoginManager()
login.login_view = "nursery.enter"
nursery = Blueprint("nursery", __name__)


class Gardener(UserMixin, db.Model):
    """A user who can log in and add plants with the form."""

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    password_hash: Mapped[str]


class Delivery(db.Model):
    """Who sent a plant, and when. The plant itself is in the store."""

    plant_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    supplier: Mapped[str]
    at: Mapped[datetime]


class LoginForm(FlaskForm):
    """The name and password of a gardener."""

    name = StringField("Name", [InputRequired()])
    password = PasswordField("Password", [InputRequired()])


class PlantForm(FlaskForm):
    """A new plant, entered by a gardener."""

    text = Regexp(r"[^\0]*\Z", message="Remove the null character (U+0000).")
    id = IntegerField("Number", [InputRequired()])
    name = StringField("Name", [InputRequired(), Length(max=80), text])
    tag = StringField("Kind", [Length(max=80), text])

    def validate_id(self, field: IntegerField) -> None:
        """Refuse a number outside the 64-bit range."""
        if field.data is not None and not -(2**63) <= field.data < 2**63:
            raise ValidationError("This number is too large.")


def create_app() -> Flask:
    """Return the site, configured by the environment: NURSERY_PASSWORD and NURSERY_TOKEN."""
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = "sqlite:///nursery.db"
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {"hide_parameters": True}
    # A restart logs everyone out, unless NURSERY_SECRET_KEY is set.
    app.config["SECRET_KEY"] = secrets.token_hex()
    app.config.from_prefixed_env("NURSERY", loads=str)
    if not (app.config.get("PASSWORD") and app.config.get("TOKEN")):
        raise RuntimeError("set NURSERY_PASSWORD and NURSERY_TOKEN")
    for extension in (db, csrf, login):
        extension.init_app(app)
    app.register_blueprint(nursery)
    with app.app_context():
        embed_store(app)
        db.create_all()
        hire("flora", app.config["PASSWORD"])
    return app


def embed_store(app: Flask) -> None:
    """Register the plant store under /api, with its plants in the site's own database."""
    store = SQLStore(db.engine, db.metadata)
    verify_token = StaticTokens({app.config["TOKEN"]: "the greenhouse"})
    api = create_blueprint(store=store, verify_token=verify_token)
    app.register_blueprint(api, url_prefix="/api")
    csrf.exempt(api)
    app.extensions["plants"] = store


def plants() -> Store:
    """Return the store of plants, for the site's own pages."""
    store: Store = current_app.extensions["plants"]
    return store


@plant_added.connect
def note_delivery(sender: Flask, plant: Plant, client: str) -> None:
    """Record who sent a plant, and when."""
    db.session.merge(Delivery(plant_id=plant.id, supplier=client, at=datetime.now(UTC)))
    db.session.commit()


@login.user_loader
def load_gardener(id: str) -> Gardener | None:
    """Return the gardener with this id, or None."""
    return db.session.get(Gardener, int(id))


def find_gardener(name: str) -> Gardener | None:
    """Return the gardener with this name, or None."""
    return db.session.scalar(db.select(Gardener).filter_by(name=name))


def hire(name: str, password: str) -> None:
    """Create the gardener if necessary, and set the password."""
    gardener = find_gardener(name) or Gardener(name=name)
    gardener.password_hash = generate_password_hash(password)
    db.session.add(gardener)
    db.session.commit()


@nursery.errorhandler(StoreUnavailable)
def say_busy(error: StoreUnavailable) -> ResponseReturnValue:
    """Return the page that asks the visitor to try again later."""
    return render_template("busy.html"), 503


@nursery.get("/")
def stock() -> ResponseReturnValue:
    """Return the page of the plants in stock."""
    return show_stock(PlantForm())


def show_stock(form: PlantForm) -> str:
    """Return the page of plants, with this form for a new plant."""
    after = request.args.get("after", None, int)
    found = [*islice(plants().iterate(after), SHOWN + 1)]
    shown = found[:SHOWN]
    ids = [plant.id for plant in shown]
    deliveries = db.session.scalars(db.select(Delivery).where(Delivery.plant_id.in_(ids)))
    return render_template(
        "stock.html",
        plants=shown,
        count=len(plants()),
        after=after,
        next=ids[-1] if len(found) > SHOWN else None,
        deliveries={delivery.plant_id: delivery for delivery in deliveries},
        form=form,
    )


@nursery.post("/")
@login_required
def add_plant() -> ResponseReturnValue:
    """Add the plant from the form, or show the form with its errors."""
    form = PlantForm()
    if form.validate_on_submit():
        plant = Plant(form.id.data, form.name.data, form.tag.data or None)
        try:
            plants().add(plant)
        except PlantExists:
            form.id.errors = ["There is a plant with this number already."]
        else:
            note_delivery(current_app, plant, current_user.name)
            flash(f"{plant.name} is in stock.")
            return redirect(url_for("nursery.stock"))
    return show_stock(form), 400


@nursery.route("/login", methods=["GET", "POST"])
def enter() -> ResponseReturnValue:
    """Log a gardener in, or show the login form."""
    form = LoginForm()
    if form.validate_on_submit():
        gardener = find_gardener(form.name.data)
        if gardener and check_password_hash(gardener.password_hash, form.password.data):
            login_user(gardener)
            return redirect(url_for("nursery.stock"))
        form.password.errors = ["The name and password don't belong together. Check both."]
    return render_template("login.html", form=form)


@nursery.post("/logout")
def leave() -> ResponseReturnValue:
    """Log the gardener out."""
    logout_user()
    return redirect(url_for("nursery.stock"))
